"""`downcast-contractions`: values are rounded to half precision once, by their producers, and moved as such."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.instrument.verify import verify
from dlc.ir import Context, SSAValue, bf16, f32, i64
from dlc.passes.dl.low_precision.downcast_contractions import DowncastContractionsPass
from dlc.passes.dl.simplification.dce import DcePass
from tests.passes.programs import Program, Writer, program, randoms


def downcast(body: Callable[..., SSAValue | Sequence[SSAValue]], *shape: int) -> Program:
    p = program(body, randoms(shape)[0])
    expected = p.run()
    for step in (DowncastContractionsPass(), DcePass()):
        step.apply(Context(), p.module)
    verify(p.module)
    for got, numbers in zip(p.run(), expected, strict=True):
        np.testing.assert_allclose(got, numbers, atol=0.02 * float(np.abs(numbers).max()))
    return p


def conv(b: Writer, x: SSAValue, channels: int = 4) -> SSAValue:
    x = b(dl.PadOp, x, b.scalar(0.0, like=x), low=(0, 1, 1, 0), high=(0, 1, 1, 0), pad_mode="constant")
    w = b.weight(randoms((3, 3, channels, 4))[0])
    return b(dl.ConvOp, x, w, strides=(1, 1), dilations=(1, 1), groups=1)


def pooled(b: Writer, x: SSAValue) -> SSAValue:
    return b(dl.MaxPoolOp, x, kernel=(2, 2), strides=(2, 2), dilations=(1, 1))


def element_types(p: Program, name: str) -> list[object]:
    return [element_type_of(op.results[0]) for op in p.main.body.block.ops if op.name == f"dl.{name}"]


def test_values_are_converted_once_for_all_readers() -> None:
    """A skip connection is padded, concatenated and max-pooled."""

    def body(b: Writer, x: SSAValue) -> SSAValue:
        skip = b(dl.ReluOp, conv(b, x))
        below = conv(b, pooled(b, skip))
        places = b.constant([0, 0, 1, 1], i64)
        up = b(dl.GatherOp, b(dl.GatherOp, below, places, axis=1), places, axis=2)
        return conv(b, b(dl.ConcatOp, skip, up, axis=3), 8)

    p = downcast(body, 1, 4, 4, 4)
    assert element_types(p, "max_pool") == element_types(p, "concat") == [bf16] and element_types(p, "gather") == [bf16] * 2
    assert element_types(p, "pad") == [bf16] * 3 and element_types(p, "conv") == [f32] * 3
    # The input, the activation, the pooled values and the weights.
    assert element_types(p, "cast") == [bf16] * 6


def test_values_with_other_readers_stay_f32() -> None:
    """A max pool with other users is shared, and a slice of an unconverted value is converted separately."""

    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        largest = pooled(b, x)
        part = b(dl.SliceOp, x, starts=(0, 0, 0, 0), limits=(1, 4, 4, 4), strides=(1, 1, 1, 1))
        return [conv(b, largest), b(dl.ReluOp, largest), conv(b, part)]

    p = downcast(body, 1, 8, 8, 4)
    assert element_types(p, "max_pool") == element_types(p, "slice") == [f32]
    assert element_types(p, "pad") == [bf16] * 2


def test_slices_of_converted_values_are_converted() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        part = b(dl.SliceOp, x, starts=(0, 0, 0, 0), limits=(1, 8, 8, 4), strides=(1, 2, 2, 1))
        return [conv(b, x), conv(b, part)]

    p = downcast(body, 1, 8, 8, 4)
    assert element_types(p, "slice") == [bf16] and element_types(p, "cast") == [bf16] * 3

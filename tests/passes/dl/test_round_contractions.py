"""`round-contractions`: numbers are rounded once, where they are made, and moved as numbers of 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.instrument.verify import verify
from dlc.ir import Context, SSAValue, bf16, f32, i64
from dlc.passes.dl.narrow_numbers.round_contractions import RoundContractionsPass
from dlc.passes.dl.simplification.dce import DcePass
from tests.passes.programs import Program, Writer, program, randoms


def rounded(body: Callable[..., SSAValue | Sequence[SSAValue]], *shape: int) -> Program:
    p = program(body, randoms(shape)[0])
    expected = p.run()
    for step in (RoundContractionsPass(), DcePass()):
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


def types(p: Program, name: str) -> list[object]:
    return [element_type_of(op.results[0]) for op in p.main.body.block.ops if op.name == f"dl.{name}"]


def test_one_number_for_all_that_read_it() -> None:
    """A skip connection is padded, joined to what comes back, and the largest of windows goes down."""

    def body(b: Writer, x: SSAValue) -> SSAValue:
        skip = b(dl.ReluOp, conv(b, x))
        below = conv(b, pooled(b, skip))
        places = b.constant([0, 0, 1, 1], i64)
        up = b(dl.GatherOp, b(dl.GatherOp, below, places, axis=1), places, axis=2)
        return conv(b, b(dl.ConcatOp, skip, up, axis=3), 8)

    p = rounded(body, 1, 4, 4, 4)
    assert types(p, "max_pool") == types(p, "concat") == [bf16] and types(p, "gather") == [bf16] * 2
    assert types(p, "pad") == [bf16] * 3 and types(p, "conv") == [f32] * 3
    # The input, the activation and what is below; the weights.
    assert types(p, "cast") == [bf16] * 6


def test_what_others_read_stays_f32() -> None:
    """The largest of windows is taken once, as others have it, and part of what is not rounded is rounded by itself."""

    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        largest = pooled(b, x)
        part = b(dl.SliceOp, x, starts=(0, 0, 0, 0), limits=(1, 4, 4, 4), strides=(1, 1, 1, 1))
        return [conv(b, largest), b(dl.ReluOp, largest), conv(b, part)]

    p = rounded(body, 1, 8, 8, 4)
    assert types(p, "max_pool") == types(p, "slice") == [f32]
    assert types(p, "pad") == [bf16] * 2


def test_a_part_of_what_is_rounded_is_a_part_of_that() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        part = b(dl.SliceOp, x, starts=(0, 0, 0, 0), limits=(1, 8, 8, 4), strides=(1, 2, 2, 1))
        return [conv(b, x), conv(b, part)]

    p = rounded(body, 1, 8, 8, 4)
    assert types(p, "slice") == [bf16] and types(p, "cast") == [bf16] * 3

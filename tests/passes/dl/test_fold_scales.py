"""`fold-scales` and `decompose-composites`: BatchNorm becomes part of the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.instrument.provenance import origins
from dlc.ir import SSAValue, f32
from dlc.passes.dl.contractions.fold_scales import FoldScalesPass
from dlc.passes.dl.movement.channels_last import ChannelsLastPass
from dlc.passes.dl.simplification.decompose_composites import DecomposeCompositesPass
from dlc.passes.dl.simplification.simplify import SimplifyPass
from tests.passes.programs import Program, Writer, program, randoms


def batch_norm(b: Writer, x: SSAValue, axis: int, channels: int) -> SSAValue:
    scale, bias, mean, variance = randoms(*((channels,),) * 4, seed=7)
    statistics = [b.weight(v) for v in (scale, bias, mean, np.abs(variance) + 0.5)]
    return b(dl.BatchNormOp, x, *statistics, axis=axis, epsilon=1e-5)


def folded(body: Any, *inputs: Any) -> Program:
    passes = (DecomposeCompositesPass(), SimplifyPass(), ChannelsLastPass(), SimplifyPass(), FoldScalesPass())
    return program(body, *inputs).apply(*passes, tolerance=2e-5)


def runtime_ops(p: Program) -> list[str]:
    """Return the ops that depend on an input."""
    known: set[SSAValue] = set()
    names: list[str] = []
    for op in p.main.body.block.ops:
        if all(v in known for v in op.operands):
            known |= set(op.results)
        else:
            names.append(op.name.removeprefix("dl."))
    return names[:-1]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_batch_norm_after_convolution(groups: int) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        x = b(dl.TransposeOp, x, permutation=(0, 2, 3, 1))
        w, bias = (b.weight(v) for v in randoms((3, 3, 4 // groups, 8), (8,)))
        y = b(dl.AddOp, b(dl.ConvOp, x, w, strides=(1, 2), dilations=(1, 1), groups=groups), bias)
        y = b(dl.TransposeOp, y, permutation=(0, 3, 1, 2))
        return b(dl.ReluOp, batch_norm(b, y, 1, 8))

    p = folded(body, *randoms((2, 4, 6, 7)))
    assert runtime_ops(p) == ["transpose", "conv", "add", "relu", "transpose"]


def test_depthwise_convolution() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        y = b(dl.ConvOp, x, b.weight(randoms((3, 3, 1, 4))[0]), strides=(1, 1), dilations=(1, 1), groups=4)
        return batch_norm(b, y, 3, 4)

    assert runtime_ops(folded(body, *randoms((1, 5, 5, 4)))) == ["conv", "add"]


def test_quotient_and_difference_after_matmul() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w, bias, divisor = (b.weight(v) for v in randoms((3, 4), (4,), (1, 4)))
        return b(dl.DivOp, b(dl.SubOp, bias, b(dl.MatmulOp, x, w)), divisor)

    assert runtime_ops(folded(body, *randoms((2, 3)))) == ["matmul", "sub"]


def test_batched_weights_keep_their_batch() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w, scale = (b.weight(v) for v in randoms((2, 3, 4), (2, 1, 4)))
        return b(dl.MulOp, b(dl.MatmulOp, x, w), scale)

    assert runtime_ops(folded(body, *randoms((2, 5, 3)))) == ["matmul"]


@pytest.mark.parametrize("shape", [(5, 1), (5, 4)])
def test_a_scale_that_varies_by_row_stays(shape: tuple[int, ...]) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w, scale = (b.weight(v) for v in randoms((3, 4), shape))
        return b(dl.MulOp, b(dl.MatmulOp, x, w), scale)

    assert runtime_ops(folded(body, *randoms((5, 3)))) == ["matmul", "mul"]


@pytest.mark.parametrize(("op", "factor"), [(dl.MulOp, -np.inf), (dl.MulOp, np.nan), (dl.DivOp, 0.0), (dl.DivOp, np.inf)])
def test_weights_stay_finite(op: type[dl.MulOp] | type[dl.DivOp], factor: float) -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(op, b(dl.MatmulOp, x, b.weight(randoms((3, 4))[0])), b.constant(np.array(factor, np.float32), f32))

    assert runtime_ops(folded(body, *randoms((5, 3)))) == ["matmul", op.name.removeprefix("dl.")]


def test_a_contraction_with_other_readers_stays() -> None:
    def body(b: Writer, x: SSAValue) -> list[SSAValue]:
        w, scale = (b.weight(v) for v in randoms((3, 4), (4,)))
        y = b(dl.MatmulOp, x, w)
        return [b(dl.MulOp, y, scale), y]

    assert runtime_ops(folded(body, *randoms((5, 3)))) == ["matmul", "mul"]


def test_location_has_both_ops() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w, scale = (b.weight(v) for v in randoms((3, 4), (4,)))
        return b(dl.MulOp, b(dl.MatmulOp, x, w), scale)

    p = folded(body, *randoms((5, 3)))
    (matmul,) = (op for op in p.main.body.block.ops if isinstance(op, dl.MatmulOp))
    assert origins(matmul.location) == ("op2", "op3")


def test_contiguous_rows_stay_whole() -> None:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.SoftmaxOp, b(dl.SoftmaxOp, x, axis=0), axis=1)

    p = program(body, *randoms((3, 4))).apply(DecomposeCompositesPass(), tolerance=1e-6)
    assert p.ops.count("softmax") == 1
    assert "reduce_max" in p.ops

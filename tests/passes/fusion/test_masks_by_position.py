"""Attention kernels compute masks that depend on positions alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.ir import SSAValue, arith, i64, linalg
from dlc.passes.base import kernels_of
from dlc.passes.fusion.form_kernels import FormKernelsPass
from dlc.passes.fusion.masks_by_position import MasksByPositionPass
from dlc.passes.linalg.fuse_generics import FuseGenericsPass
from dlc.passes.linalg.lower_kernels_to_linalg import LowerKernelsToLinalgPass
from dlc.target import CPU_LEVELS
from tests.passes.programs import Program, Writer, program, randoms

AVX2 = CPU_LEVELS["cpu:avx2"]
Mask = Callable[[Writer, SSAValue, SSAValue], SSAValue]


def causal(b: Writer, i: SSAValue, j: SSAValue) -> SSAValue:
    return b(dl.LessEqualOp, j, i)


def window(b: Writer, i: SSAValue, j: SSAValue) -> SSAValue:
    """Attend to the last three keys and the first one."""
    last = b(dl.GreaterOp, j, b(dl.SubOp, i, b.scalar(3, like=i)))
    return b(dl.AndOp, b(dl.OrOp, last, b(dl.EqualOp, j, b.scalar(0, like=i))), b(dl.LessEqualOp, j, i))


def far(b: Writer, i: SSAValue, j: SSAValue) -> SSAValue:
    """Use positions that 32 bits cannot hold."""
    large = b.scalar(1 << 31, like=i)
    return b(dl.LessEqualOp, b(dl.AddOp, j, large), b(dl.AddOp, i, large))


def attention(mask: Mask) -> Program:
    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue) -> SSAValue:
        i, j = (b(dl.IotaOp, size=(24,), to=i64, start=0, step=1) for _ in range(2))
        seen = mask(b, b(dl.ReshapeOp, i, shape=(24, 1)), j)
        scores = b(dl.SelectOp, seen, b(dl.MatmulOp, q, k), b.scalar(-np.inf, like=q))
        return b(dl.MatmulOp, b(dl.SoftmaxOp, scores, axis=3), v)

    return program(body, *randoms((2, 4, 24, 8), (2, 4, 8, 24), (2, 4, 24, 16)))


@pytest.mark.parametrize(("mask", "arguments"), [(causal, 3), (window, 3), (far, 4)])
def test_masks_of_32_bit_positions_are_no_arguments(mask: Mask, arguments: int) -> None:
    p = attention(mask).apply(FormKernelsPass(AVX2), MasksByPositionPass(), tolerance=1e-5)
    (dispatch,) = (op for op in p.main.body.block.ops if isinstance(op, DispatchOp))
    assert len(dispatch.arguments) == arguments
    assert ("iota" in p.ops) == (arguments == 4)


def test_masks_are_computed_in_the_kernel() -> None:
    """One op of the kernel contains the comparison and its index arithmetic; no other op computes from positions."""
    p = attention(causal).apply(FormKernelsPass(AVX2), MasksByPositionPass(), tolerance=1e-5)
    p.apply(LowerKernelsToLinalgPass(), FuseGenericsPass(), tolerance=1e-5)
    (kernel,) = kernels_of(p.module)
    asking = [op for op in kernel.walk() if isinstance(op, linalg.IndexOp)]
    (reader,) = {op.parent_op() for op in asking}
    assert len(asking) == 2 and reader is not None
    assert any(isinstance(op, arith.SelectOp) for op in reader.walk())

"""Kernels that differ in literals alone are merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.dialects import dl
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.ir import SSAValue
from dlc.passes.fusion.dedupe_kernels import DedupeKernelsPass
from dlc.passes.fusion.form_kernels import FormKernelsPass
from dlc.passes.fusion.share_literals import ShareLiteralsPass
from dlc.target import CPU_LEVELS
from tests.passes.programs import Program, Writer, program, randoms

AVX2 = CPU_LEVELS["cpu:avx2"]


def shared(numbers: Sequence[float], dtype: type = np.float32) -> Program:
    """Return results k·x + 1 of separate kernels; check that the program computes the same before and after sharing."""

    def body(b: Writer, x: SSAValue) -> Sequence[SSAValue]:
        return [b(dl.AddOp, b(dl.MulOp, x, b.scalar(k, like=x)), b.scalar(1, like=x)) for k in numbers]

    p = program(body, *(x.astype(dtype) for x in randoms((5,))))
    p.apply(FormKernelsPass(AVX2), ShareLiteralsPass(), DedupeKernelsPass(), tolerance=0)
    return p


@pytest.mark.parametrize(
    ("numbers", "dtype", "kernels"),
    [
        ([0.0, -0.0, np.inf, *range(1, 6)], np.float32, 1),
        (range(7), np.float32, 7),
        (range(8), np.int32, 8),
        ([*range(2, 9), 2, 3], np.float32, 7),
    ],
    ids=["eight", "seven", "integers", "seven that differ"],
)
def test_kernel_count(numbers: Sequence[float], dtype: type, kernels: int) -> None:
    p = shared(numbers, dtype)
    assert sum(isinstance(op, KernelOp) for op in p.module.ops) == kernels


def test_equal_literals_are_not_arguments() -> None:
    p = shared(range(1, 10))
    assert {len(op.operands) for op in p.module.walk() if isinstance(op, DispatchOp)} == {2}
    (kernel,) = (op for op in p.module.ops if isinstance(op, KernelOp))
    assert [op.reference() for op in kernel.body.block.ops if isinstance(op, dl.ConstantOp)] == [1.0]


def test_literals_in_loops() -> None:
    """Literals are passed from above the loop."""

    def steps(x: Any) -> Any:
        def body(carry: Any, _: None) -> Any:
            return tuple(dlc.numpy.cos(v) * (0.1 * (k + 1)) for k, v in enumerate(carry)), None

        return dlc.lax.scan(body, tuple(x + k for k in range(9)), None, length=40)[0]

    x = np.linspace(-1, 1, 6, dtype=np.float32)
    compiled: Any = dlc.jit(steps, cache=False)
    evaluated: Any = dlc.jit(steps, target="reference")
    for got, expected in zip(compiled(x), evaluated(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)

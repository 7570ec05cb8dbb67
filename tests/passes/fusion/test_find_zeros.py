"""Masked blocks are skipped in training, where attention weights are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dlc
from dlc import nn
from dlc.dialects import dl
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.ir import SSAValue
from dlc.passes.fusion.find_zeros import FindZerosPass
from dlc.passes.fusion.form_kernels import FormKernelsPass
from dlc.target import CPU_LEVELS
from tests.passes.programs import Writer, program, randoms

AVX2 = CPU_LEVELS["cpu:avx2"]


@pytest.mark.parametrize(("hides", "expected"), [(-np.inf, [[0], [0], [2], [2, 3]]), (0.0, [])])
def test_masked_arguments_are_marked(hides: float, expected: list[list[int]]) -> None:
    """Masks of scores are marked, and operands of sums and products with weights; not masks that only zero scores."""

    def body(b: Writer, q: SSAValue, k: SSAValue, v: SSAValue, w: SSAValue, mask: SSAValue) -> Sequence[SSAValue]:
        scores = b(dl.SelectOp, mask, b(dl.MatmulOp, q, k), b.scalar(hides, like=q))
        weights = b(dl.SoftmaxOp, scores, axis=2)
        mean = b(dl.MatmulOp, weights, v)
        moved = b(dl.MulOp, b(dl.MatmulOp, mean, w), weights)
        return [mean, b(dl.MatmulOp, b(dl.SelectOp, mask, b(dl.NegOp, moved), b.scalar(0.0, like=q)), v)]

    p = program(body, *randoms((2, 24, 8), (2, 8, 24), (2, 24, 16), (2, 16, 24)), np.tri(24, dtype=np.bool_))
    p.apply(FormKernelsPass(AVX2), FindZerosPass(), tolerance=1e-5)
    zeros = {k.symbol: list(k.zeros) for k in p.module.ops if isinstance(k, KernelOp)}
    found = [zeros[d.symbol] for d in p.main.body.block.ops if isinstance(d, DispatchOp)]
    assert sorted(filter(None, found)) == expected


def test_kernels_with_different_facts_are_duplicated() -> None:
    def body(b: Writer, scores: SSAValue, mask: SSAValue, v: SSAValue) -> Sequence[SSAValue]:
        masked = b(dl.SelectOp, mask, scores, b.scalar(-np.inf, like=scores))
        return [b(dl.MatmulOp, b(dl.SoftmaxOp, masked, axis=1), v), b(dl.MatmulOp, scores, v)]

    p = program(body, *randoms((24, 24)), np.tri(24, dtype=np.bool_), *randoms((24, 8)))
    p.apply(FormKernelsPass(AVX2), tolerance=1e-5)
    assert len([k for k in p.module.ops if isinstance(k, KernelOp)]) == 2
    p.apply(FindZerosPass(), tolerance=1e-5)
    kernels = {k.symbol: k for k in p.module.ops if isinstance(k, KernelOp)}
    products = [d for d in p.main.body.block.ops if isinstance(d, DispatchOp) and "matmul" in d.symbol]
    assert [kernels[d.symbol].zeros for d in products] == [(0,), ()]


def test_attention_gradients_with_masks() -> None:
    """Zero blocks before, after and between unmasked ones; fully masked rows; sizes that no tile divides."""

    def loss(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return (nn.attention(q, k, v, mask=mask) ** 2).sum()

    gradient = dlc.value_and_grad(loss, argnums=(0, 1, 2))
    q, k, v = (np.random.default_rng(n).standard_normal((2, 75, 16)).astype(np.float32) for n in range(3))
    band = np.abs(np.subtract.outer(np.arange(75), np.arange(75))) < 9
    hole = np.ones((75, 75), np.bool_)
    hole[20:60, 10:50] = False
    hole[:30] = False
    compiled: Any = dlc.jit(gradient, cache=False)
    wide: Any = dlc.jit(gradient, target="reference")
    for mask in (np.tri(75, dtype=np.bool_), band, hole):
        value, found = compiled(q, k, v, mask)
        expected, grads = wide(*(x.astype(np.float64) for x in (q, k, v)), mask)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        for got, grad in zip(found, grads, strict=True):
            np.testing.assert_allclose(got, grad, rtol=1e-4, atol=1e-4 * np.abs(grad).max())

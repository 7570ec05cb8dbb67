"""`unroll-reductions`: several k iterations per iteration of a loop, with the same results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function
from dlc.cost_model import UnrollingCosts
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, parse_module, scf
from dlc.passes.base import kernels_of
from dlc.passes.loops.forward_stores import ForwardStoresPass
from dlc.passes.loops.static_loops import constant_range
from dlc.passes.loops.unroll_reductions import UnrollReductionsPass
from dlc.passes.loops.vectorize import VectorizePass
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.target import CPU_LEVELS
from tests.passes.tiling.kernels import KERNELS

CONTEXT = make_context()
TARGET = CPU_LEVELS["cpu:avx2"]
PASSES = (BufferizeKernelsPass(), TileKernelsPass(TARGET), VectorizePass(), ForwardStoresPass())


def unrolled(text: str, **settings: int) -> ModuleOp:
    module = parse_module(CONTEXT, text)
    costs = replace(TARGET.costs, unrolling=UnrollingCosts(**settings))
    for p in (*PASSES, UnrollReductionsPass(replace(TARGET, costs=costs))):
        p.apply(CONTEXT, module)
        module.verify()
    return module


def accumulating_loops(module: ModuleOp) -> list[range | None]:
    return [constant_range(op) for op in module.walk() if isinstance(op, scf.ForOp) and op.results]


def product_of(module: ModuleOp, depth: int) -> np.ndarray:
    (kernel,) = kernels_of(module)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((13, depth), dtype=np.float32), rng.standard_normal((3, depth, 16), dtype=np.float32)
    c = np.zeros((13, 40), np.float32)
    evaluate_function(kernel, [a, b, c])
    np.testing.assert_allclose(c, a @ b.transpose(1, 0, 2).reshape(depth, 48)[:, :40], rtol=1e-4, atol=1e-4)
    return c


@pytest.mark.parametrize("depth", [8, 24, 27, 97])
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_the_rest_of_the_iterations_is_a_loop_of_its_own_and_results_are_the_same(depth: int, factor: int) -> None:
    text = KERNELS["matmul"].replace("x24x", f"x{depth}x").replace("13x24", f"13x{depth}")
    module = unrolled(text, factor=factor, min_steps=1, min_rows=1)
    end = depth // factor * factor
    expected = {range(0, end, factor), range(end, depth)} if end < depth else {range(0, end, factor)}
    assert set(accumulating_loops(module)) == expected
    np.testing.assert_array_equal(product_of(module, depth), product_of(unrolled(text, min_steps=1000), depth))


def test_short_loops_are_not_unrolled() -> None:
    assert set(accumulating_loops(unrolled(KERNELS["matmul"], min_steps=25))) == {range(24)}
    assert set(accumulating_loops(unrolled(KERNELS["matmul"], factor=13, min_steps=1))) == {range(24)}


def test_loops_with_many_ops_per_iteration_are_not_unrolled() -> None:
    loops = (op for op in unrolled(KERNELS["matmul"], min_steps=25).walk() if isinstance(op, scf.ForOp) and op.results)
    max_ops = max(len(loop.body.block.ops) for loop in loops)
    for limit, expected in ((0, {range(24)}), (max_ops, {range(0, 24, 4)})):
        module = unrolled(KERNELS["matmul"], min_steps=1, min_rows=1, max_iteration_ops=limit)
        assert set(accumulating_loops(module)) == expected


def test_zen_4_does_not_unroll() -> None:
    assert {name for name, target in CPU_LEVELS.items() if target.costs.unrolling is not None} == {
        *("cpu:avx2", "cpu:avx2_vnni", "cpu:avx512", "cpu:avx512_vnni", "cpu:avx512_fp16")
    }

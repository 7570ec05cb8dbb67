"""Contractions with packed panels: correct up to the last lane, and deterministic for any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.nn as nn
import dlc.numpy as dnp
from dlc.dialects.registry import make_context
from dlc.ir import parse_module
from dlc.passes.base import kernels_of
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.choose_tiles import choose_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.loop_nests import SizedLoopNest
from dlc.passes.tiling.plan_kinds import ThreadPlan
from dlc.target import CPU_LEVELS

Product = Callable[[Any, Any], Any]

CASES: dict[str, tuple[Product, tuple[int, ...], tuple[int, ...]]] = {
    "rows far apart": (dnp.matmul, (70, 300), (300, 512)),
    "a long reduction, and what follows": (lambda x, w: nn.relu(x @ w + 1), (131, 1111), (1111, 96)),
    "both operands reduced along their first axis": (lambda x, y: dnp.einsum("km,kn->mn", x, y), (1000, 128), (1000, 256)),
    "lanes apart": (lambda x, w: dnp.einsum("mk,nk->mn", x, w), (143, 83), (75, 83)),
    "lanes apart in each head": (lambda x, w: dnp.einsum("hmk,hnk->hmn", x, w), (3, 143, 40), (3, 64, 40)),
    "rows of both, and what is left at the ends": (dnp.matmul, (701, 1203), (1203, 131)),
    "windows": (lambda x, y: _conv_weights(x, y), (5, 18, 18, 24), (5, 16, 16, 32)),
}


def _conv_weights(x: Any, y: Any) -> Any:
    """Compute the weights' cotangent of a 3×3 convolution with result cotangent `y`."""
    return dlc.grad(lambda w: dnp.sum(nn.conv(x, w) * y))(dnp.zeros((3, 3, x.shape[-1], 32), dtype=x.dtype))


def _reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    return np.einsum("nhwckl,nhwo->klco", windows, y)


EXPECTED: dict[str, Product] = {
    "rows far apart": np.matmul,
    "a long reduction, and what follows": lambda x, w: np.maximum(x @ w + 1, 0),
    "both operands reduced along their first axis": lambda x, y: x.T @ y,
    "lanes apart": lambda x, w: x @ w.T,
    "lanes apart in each head": lambda x, w: x @ w.swapaxes(1, 2),
    "rows of both, and what is left at the ends": np.matmul,
    "windows": _reference,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_products_are_right_and_the_same_for_any_number_of_threads(name: str, dtype: type) -> None:
    function, *shapes = CASES[name]
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    one, three = (np.asarray(dlc.jit(num_threads=n)(function)(*arguments)) for n in (1, 3))
    np.testing.assert_array_equal(one, three)
    tolerance = 1e-3 if dtype is np.float32 else 1e-10
    np.testing.assert_allclose(one, EXPECTED[name](*arguments), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rows", [1, 5])
def test_few_rows_read_a_large_operand_in_place(rows: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((rows, 1003)), rng.standard_normal((1003, 261))
    product = dlc.jit(lambda x, w: dnp.exp(x @ w / 100), num_threads=2)
    assert "%panel" not in product.lower(x, w).as_text("loops")
    np.testing.assert_allclose(product(x, w), np.exp(x @ w / 100), rtol=1e-10)


def planned(function: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[SizedLoopNest, ThreadPlan]:
    text = dlc.jit(function, target="cpu:avx2").lower(*(np.zeros(shape, np.float32) for shape in shapes)).as_text("linalg")
    module = parse_module(make_context(), text)
    BufferizeKernelsPass().apply(make_context(), module)
    (kernel,) = kernels_of(module)
    (nest,) = form_loop_nests(kernel)
    return nest.specialize({}), choose_tiles(nest.specialize({}), CPU_LEVELS["cpu:avx2"])


def test_reduction_blocks_are_processed_by_rows_of_tiles() -> None:
    for steps, whole in ((1024, True), (1025, False)):
        nest, plan = planned(dnp.matmul, (70, steps), (steps, 512))
        lane = next(d for d in plan.order if nest.ops[1].output.stride(d) == 1)
        assert (not plan.blocks, plan.order[-1]) == (whole, lane)


@pytest.mark.parametrize(("columns", "panels"), [(256, (1,)), (1024, (1,)), (2048, (0, 1))])
def test_operands_are_packed_for_many_tiles(columns: int, panels: tuple[int, ...]) -> None:
    """A task has 4, 16 or 32 tiles of 16 columns."""
    assert planned(dnp.matmul, (64, 3136), (3136, columns))[1].panels == panels


def test_rows_are_prefetched_between_reduction_blocks() -> None:
    columns, *_ = CASES["both operands reduced along their first axis"]
    for function, shapes, prefetch in (
        (columns, ((1000, 128), (1000, 256)), (0, 1)),
        (columns, ((100, 128), (100, 256)), ()),
        # The other operand is contiguous along the reduction.
        (dnp.matmul, ((70, 2000), (2000, 512)), (1,)),
    ):
        assert planned(function, *shapes)[1].prefetch == prefetch


def test_batched_products_share_a_task_while_panels_fit_the_cache() -> None:
    for steps, heads in ((32, 4), (128, 1)):
        nest, plan = planned(lambda x, y: dnp.einsum("hmk,hnk->hmn", x, y), (32, 128, steps), (32, 128, steps))
        assert (nest.extents[plan.order[0]], plan.grid[plan.order[0]]) == (32, heads)


def test_row_sums_are_vectorized_along_rows_with_any_epilogue() -> None:
    nest, plan = planned(lambda x, y: -dnp.where(x > y, x, 0).sum(-1), (300, 100), (300, 100))
    assert set(plan.chunks.values()) == {32} and all(plan.tile(d) == 1 for d in nest.shared_dims)


def test_plans_have_panels() -> None:
    for name, (function, *shapes) in CASES.items():
        text = dlc.jit(function).lower(*(np.zeros(shape, np.float32) for shape in shapes)).as_text("loops")
        assert "%panel" in text, name

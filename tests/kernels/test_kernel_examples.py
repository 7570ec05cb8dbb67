"""The kernels of examples/kernels against NumPy on every target, and batched."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from tests.targets import TARGETS

FOLDER = Path(__file__).parents[2] / "examples" / "kernels"
RNG = np.random.default_rng(0)


def kernel(file: str, name: str = "") -> Any:
    """Return a function of an example, by default of the file's name."""
    return runpy.run_path(str(FOLDER / f"{file}.py"))[name or file]


flash_attention, block_product, stencil, sliding_median, segmented_sum, smith_waterman = map(
    kernel, ("flash_attention", "block_product", "stencil", "sliding_median", "segmented_sum", "smith_waterman")
)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def attention_by_numpy(q: np.ndarray, key: np.ndarray, value: np.ndarray, causal: bool = True) -> np.ndarray:
    key, value = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = q @ key.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value


def block_product_by_numpy(x: np.ndarray, packed: np.ndarray, scales: np.ndarray) -> np.ndarray:
    weights = np.concatenate([packed & 15, packed >> 4], 2).astype(np.float32) - 8
    return (weights * scales[..., None].astype(np.float32)).reshape(len(packed), -1) @ x


def stencil_by_numpy(x: np.ndarray) -> np.ndarray:
    shifted = [np.roll(x, shift, axis) for axis in range(3) for shift in (1, -1)]
    return (sum(shifted) - 6 * x)[1:-1, 1:-1, 1:-1]


def median_by_numpy(x: np.ndarray, window: int) -> np.ndarray:
    return np.median(np.lib.stride_tricks.sliding_window_view(x, window, 1), -1)


def segmented_sum_by_numpy(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    return np.stack([x[first:end].sum(0) for first, end in pairwise(offsets)])


def smith_waterman_by_numpy(a: np.ndarray, b: np.ndarray, costs: np.ndarray) -> np.ndarray:
    best: list[Any] = []
    for query, other in zip(a, b, strict=True):
        scores = np.zeros((len(query) + 1, len(other) + 1), costs.dtype)
        for i, x in enumerate(query):
            for j, y in enumerate(other):
                diagonal = scores[i, j] + costs[0 if x == y else 1]
                scores[i + 1, j + 1] = max(0, diagonal, scores[i, j + 1] + costs[2], scores[i + 1, j] + costs[2])
        best.append(scores.max())
    return np.array(best)


def attention_case(batch: int, heads: int, groups: int, queries: int, keys: int, depth: int, causal: bool) -> Any:
    arrays = normal(batch, heads, queries, depth), normal(batch, groups, keys, depth), normal(batch, groups, keys, depth)
    return partial(flash_attention, causal=causal), partial(attention_by_numpy, causal=causal), arrays


def block_product_case(n: int, blocks: int) -> Any:
    packed, scales = RNG.integers(0, 256, (n, blocks, 16)).astype(np.uint8), normal(n, blocks).astype(np.float16)
    return block_product, block_product_by_numpy, (normal(32 * blocks), packed, scales)


def smith_waterman_case(m: int, n: int, costs: np.ndarray) -> Any:
    a, b = (RNG.integers(0, 4, (3, size)).astype(np.int8) for size in (m, n))
    return smith_waterman, smith_waterman_by_numpy, (a, b, costs)


def norm_rotary_by_numpy(x: np.ndarray, weight: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    first, second = np.split(x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight, 2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "attention": attention_case(1, 2, 1, 128, 128, 16, True),
    "ragged attention": attention_case(1, 4, 2, 45, 45, 24, True),
    "attention to all keys": attention_case(2, 2, 2, 33, 70, 16, False),
    "block product": block_product_case(8, 3),
    "block product of 7 rows": block_product_case(7, 2),
    "stencil": (stencil, stencil_by_numpy, (normal(5, 6, 34),)),
    "ragged stencil": (stencil, stencil_by_numpy, (normal(3, 4, 25),)),
    **{
        f"median of {n}": (partial(sliding_median, window=n), partial(median_by_numpy, window=n), (normal(3, 50),))
        for n in (1, 3, 5, 7, 9)
    },
    "segmented sum": (segmented_sum, segmented_sum_by_numpy, (normal(30, 70), np.array([0, 3, 3, 10, 30], np.int32))),
    **{
        f"norm and rotary of {n}": (
            kernel("norm_rotary"),
            norm_rotary_by_numpy,
            (normal(3, 2, n), normal(n), normal(3, n // 2), normal(3, n // 2)),
        )
        for n in (32, 22)
    },
    "alignment": smith_waterman_case(10, 40, np.array([2, -1, -1], np.int32)),
    "alignment in floats": smith_waterman_case(37, 20, np.array([2, -1.5, -1.25], np.float32)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_against_numpy(case: str, target: str) -> None:
    function, expected, arrays = CASES[case]
    np.testing.assert_allclose(dlc.jit(target=target)(function)(*arrays), expected(*arrays), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("case", ["ragged attention", "block product of 7 rows", "ragged stencil", "median of 5", "alignment"])
def test_batches_against_a_loop(case: str) -> None:
    function, _, (x, *others) = CASES[case]
    batch = np.stack([x, x[::-1]])
    batched = dlc.jit(dlc.vmap(function, in_axes=(0, *(None for _ in others))))(batch, *others)
    loop = np.stack([np.asarray(dlc.jit(function)(np.ascontiguousarray(element), *others)) for element in batch])
    np.testing.assert_allclose(batched, loop, rtol=1e-5, atol=1e-6)

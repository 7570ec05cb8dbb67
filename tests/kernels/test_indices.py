"""Index variables, assumed indices, shifts, bit casts, rows of arrays, and loops with hints, on every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.kernels as k
from tests.targets import TARGETS

X = np.random.default_rng(0).normal(size=(5, 13)).astype(np.float32)


@dlc.kernel(results=lambda x: (k.Result(x.shape, x.dtype, fill=0), k.Result(x.shape[:1], np.int64)))
def sort_rows(x: Any, y: Any, negatives: Any) -> None:
    """Merge the sorted runs of doubling length of each row; count the negative elements."""
    rows, n = x.shape
    for row in k.grid(rows, parallel=2):
        source, target = k.buffer(n, x.dtype, fill=None), y[row]
        for j in k.range(n, unroll=4):
            source[j] = x[row, j]
        count = k.variable(0, size=n + 1)
        for j in k.range(n):
            sign = source[j].view(np.uint32) >> 31
            count.value = k.minimum(count.value + k.assume_index(sign, 2), n)
        negatives[row] = count.value.astype(np.int64)
        for level in k.range((n - 1).bit_length()):
            run = k.index(1) << level
            for start in k.range(0, n, 2 * run):
                middle, end = k.minimum(start + run, n), k.minimum(start + 2 * run, n)
                left, right = k.variable(start, size=n + 1), k.variable(middle, size=n + 1)
                for j in k.range(start, end):
                    a, b = source[k.clip(left.value, n)], source[k.clip(right.value, n)]
                    is_left = (left.value < middle) & ((right.value >= end) | (a <= b))
                    target[j] = k.select(is_left, a, b)
                    left.value = k.minimum(k.select(is_left, left.value + 1, left.value), n)
                    right.value = k.minimum(k.select(is_left, right.value, right.value + 1), n)
            for j in k.range(n):
                source[j] = target[j]


@pytest.mark.parametrize("target", TARGETS)
def test_merge_sort(target: str) -> None:
    y, negatives = dlc.jit(target=target)(sort_rows)(X)
    np.testing.assert_array_equal(np.asarray(y), np.sort(X, 1))
    np.testing.assert_array_equal(np.asarray(negatives), (X < 0).sum(1))


@pytest.mark.parametrize("target", TARGETS)
def test_vectors_of_booleans_and_signs(target: str) -> None:
    @dlc.kernel(results=lambda x: (k.Result(x.shape, x.dtype), k.Result(2, np.bool_)))
    def signs(x: Any, y: Any, flags: Any) -> None:
        for _ in k.grid(1):
            v = x.load(0, width=8)
            y.store(0, value=k.copysign(2 * v, -v))
            flags[0], flags[1] = (v > 2).any(), (v > -9).all()

    x = X[0, :8]
    y, flags = dlc.jit(target=target)(signs)(x)
    np.testing.assert_array_equal(np.asarray(y), -2 * x)
    assert np.asarray(flags).tolist() == [bool((x > 2).any()), True]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 11])
def test_unrolled_loops_with_bounds_that_are_values(size: int) -> None:
    @dlc.kernel(results=lambda x, n: k.Result(x.shape, x.dtype, fill=0))
    def fill(x: Any, n: Any, y: Any) -> None:
        for row in k.grid(x.shape[0]):
            for j in k.range(1, k.clip(n[0], x.shape[1]), 2, unroll=3):
                y[row, j] = x[row, j]

    expected = np.zeros_like(X)
    expected[:, 1:size:2] = X[:, 1:size:2]
    np.testing.assert_array_equal(fill(X, np.array([size])), expected)


def test_local_buffers_are_written_in_each_iteration() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype, fill=0))
    def reverse_blocks(x: Any, y: Any) -> None:
        for row in k.grid(x.shape[0]):
            block = k.buffer(4, x.dtype, fill=None)
            for start in k.range(0, k.clip(x.shape[1] - 3, 13), 4):
                for j in k.range(4):
                    block[j] = x[row, start + j]
                for j in k.range(4):
                    y[row, start + j] = block[3 - j]

    np.testing.assert_array_equal(np.asarray(reverse_blocks(X))[:, :12], X[:, :12].reshape(5, 3, 4)[:, :, ::-1].reshape(5, 12))


def _run(body: Callable[[Any, Any], None]) -> None:
    def kernel(x: Any, y: Any) -> None:
        for row in k.grid(x.shape[0]):
            body(x[row], y[row])

    dlc.jit(dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype, fill=0))(kernel))(X)


def _assigned(x: Any, y: Any) -> None:
    position = k.variable(0, size=13)
    for j in k.range(13):
        position.value = position.value + j


def _read_early(x: Any, y: Any) -> None:
    local = k.buffer(13, x.dtype, fill=None)
    for j in k.range(13):
        local[j] = x[j]
        y[j] = local[12 - j]


def _stepped(x: Any, y: Any) -> None:
    for j in k.range(13):
        for _ in k.range(0, 13, j):
            y[j] = 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x, y: x[13], "index 13 of x is not within 0..12: axis 1"),
        (_assigned, "an index 0..24 is assigned to a k.variable of size 13; limit it by k.clip"),
        (_read_early, "the buffer with fill=None is read before all of its elements are provably written"),
        (_stepped, "step 0..12; expected an index that is provably positive"),
        (lambda x, y: k.range(3, unroll=0), "unroll=0; expected a Python integer of 1 to 64"),
        (lambda x, y: x[0].view(np.int64), r".view\(int64\) of float32 values; expected a dtype of the same size"),
        (
            lambda x, y: x[0].view(np.int32) << k.index(32),
            "<< by .*; expected an integer, or an index, that is provably in 0..31",
        ),
        (lambda x, y: x.load(0, width=4).any(), r".any\(\) of Value.*; expected a vector of booleans"),
    ],
)
def test_errors(body: Callable[[Any, Any], None], message: str) -> None:
    with pytest.raises(dlc.DlcError, match=message):
        _run(body)


def test_points_per_task() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def double(x: Any, y: Any) -> None:
        for i in k.grid(x.shape[0], parallel=0):
            y[i] = x[i]

    with pytest.raises(dlc.DTypeError, match="parallel=0; expected a Python integer of 1 to"):
        double(X[0])

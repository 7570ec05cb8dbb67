"""Kernels of the tests, with their definitions in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc
import dlc.kernels as k


@dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
def cumulative_maximum(x: Any, y: Any) -> None:
    for row in k.grid(x.shape[0]):
        best = k.variable(x[row, 0])
        for j in k.range(x.shape[1]):
            best.value = k.maximum(best.value, x[row, j])
            y[row, j] = best.value


@dlc.kernel(results=lambda x, w: k.Result(x.shape, x.dtype))
def rms_norm(x: Any, w: Any, y: Any, *, width: int = 8, epsilon: float = 1e-6) -> None:
    rows, n = x.shape
    for row in k.grid(rows):
        total = k.variable(k.full(width, 0, x.dtype))
        for j in k.range(0, n, width):
            v = x.load(row, j, width=width)
            total.value = k.fma(v, v, total.value)
        scale = k.rsqrt(total.value.sum() / n + epsilon)
        for j in k.range(0, n, width):
            y.store(row, j, value=x.load(row, j, width=width) * scale * w.load(j, width=width))


def rms_norm_by_numpy(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w


@dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype, fill=0))
def stencil(x: Any, y: Any) -> None:
    n, m = x.shape
    for i, j in k.grid(n, m):
        with k.when((i > 0) & (i < n - 1) & (j > 0) & (j < m - 1)):
            y[i, j] = 4 * x[i, j] - x[i - 1, j] - x[i + 1, j] - x[i, j - 1] - x[i, j + 1]


def stencil_by_numpy(x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    y[1:-1, 1:-1] = 4 * x[1:-1, 1:-1] - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:]
    return y


@dlc.kernel(results=lambda x, ids, *, count: k.Result((count, x.shape[1]), x.dtype))
def segment_sum(x: Any, ids: Any, y: Any, *, count: int) -> None:
    """Sums of the rows with each segment id; ids outside of the segments are ignored."""
    for segment, column in k.grid(count, x.shape[1]):
        total = k.variable(0, x.dtype)
        for row in k.range(x.shape[0]):
            with k.when(k.index(ids[row]) == segment):
                total.value += x[row, column]
        y[segment, column] = total.value


def segment_sum_by_numpy(x: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    return np.stack([x[ids == segment].sum(0) for segment in range(count)]).astype(x.dtype)


@dlc.kernel(results=lambda x: (k.Result(x.shape[:1], x.dtype), k.Result(x.shape[:1], np.int32)))
def row_minimum(x: Any, smallest: Any, position: Any) -> None:
    """The smallest element of each row, and the index of its first occurrence."""
    for row in k.grid(x.shape[0]):
        best, index = k.variable(x[row, 0]), k.variable(0, np.int32)
        for j in k.range(1, x.shape[1]):
            with k.when(x[row, j] < best.value):
                best.value = x[row, j]
                index.value = j.astype(np.int32)
        smallest[row], position[row] = best.value, index.value


@dlc.kernel(results=lambda x, ids: k.Result(ids.shape, x.dtype))
def gather_clipped(x: Any, ids: Any, y: Any) -> None:
    for i in k.grid(ids.shape[0]):
        y[i] = x[k.clip(ids[i], x.shape[0])]


@dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
def smoothed(x: Any, y: Any) -> None:
    """Means of three neighbors in each row, by a local buffer with a border of zeros."""
    n = x.shape[1]
    for row in k.grid(x.shape[0]):
        padded = k.buffer(n + 2, x.dtype)
        for j in k.range(n):
            padded[j + 1] = x[row, j]
        for j in k.range(n):
            y[row, j] = (padded[j] + padded[j + 1] + padded[j + 2]) / 3


def smoothed_by_numpy(x: np.ndarray) -> np.ndarray:
    p = np.pad(x, ((0, 0), (1, 1)))
    return ((p[:, :-2] + p[:, 1:-1] + p[:, 2:]) / 3).astype(x.dtype)


@dlc.kernel(results=lambda a, b: k.Result((a.shape[0], b.shape[1]), a.dtype))
def matmul(a: Any, b: Any, c: Any, *, rows: int = 3, columns: int = 8) -> None:
    for i, j in k.grid(-(-c.shape[0] // rows), -(-c.shape[1] // columns)):
        total = k.variable(k.full((rows, columns), 0, a.dtype))
        for p in k.range(a.shape[1]):
            column = a.load(rows * i, p, width=(rows, 1), fill=0)
            total.value = k.fma(column, b.load(p, columns * j, width=columns, fill=0), total.value)
        c.store(rows * i, columns * j, value=total.value, masked=True)


@dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
def centered(x: Any, y: Any) -> None:
    """Differences from the mean of each row; a size is used as a number."""
    n, m = x.shape
    for row in k.grid(n):
        total = k.variable(0, x.dtype)
        for j in k.range(m):
            total.value += x[row, m - 1 - j]
        for j in k.range(m):
            y[row, j] = x[row, j] - total.value / m


@dlc.kernel(results=lambda x: k.Result(x.shape[0] // 2, x.dtype))
def pair_sums(x: Any, y: Any) -> None:
    for i in k.grid(y.shape[0]):
        y[i] = x[2 * i] + x[2 * i + 1]


@dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
def doubled(x: Any, y: Any) -> None:
    for i, lanes in k.strips(x.shape[0], 8):
        y.store(i, value=2 * x.load(i, width=lanes))

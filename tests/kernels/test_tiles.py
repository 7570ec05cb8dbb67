"""Tiles of several dimensions, masks at ragged edges, strips, and checks at run time, against NumPy on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.kernels as k
from tests.kernels.kernels import matmul
from tests.targets import TARGETS

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(12, 5, 32), (13, 70, 35), (1, 1, 1), (100, 33, 64)])
def test_matmul(shape: tuple[int, int, int], dtype: Any, target: str) -> None:
    m, p, n = shape
    a, b = normal(m, p, dtype=dtype), normal(p, n, dtype=dtype)
    np.testing.assert_allclose(
        dlc.jit(target=target)(lambda a, b: matmul(a, b, rows=6, columns=16))(a, b), a @ b, rtol=1e-4, atol=1e-4
    )


@dlc.kernel(results=lambda a, b: k.Result((a.shape[0], b.shape[1]), a.dtype))
def blocked_matmul(a: Any, b: Any, c: Any) -> None:
    for i, j in k.grid(-(-c.shape[0] // 4), -(-c.shape[1] // 16)):
        total = k.variable(k.full((4, 16), 0, a.dtype))
        for p in k.range(0, a.shape[1], 8):
            left, right = a.load(4 * i, p, width=(4, 8), fill=0), b.load(p, 16 * j, width=(8, 16), fill=0)
            total.value = k.dot(left, right, total.value)
        c.store(4 * i, 16 * j, value=total.value, masked=True)


@pytest.mark.parametrize("target", TARGETS)
def test_dot(target: str) -> None:
    a, b = normal(10, 19), normal(19, 21)
    np.testing.assert_allclose(dlc.jit(target=target)(blocked_matmul)(a, b), a @ b, rtol=1e-4, atol=1e-5)
    gradient = dlc.jit(target=target)(dlc.grad(lambda a: (blocked_matmul(a, b) ** 2).sum()))(a)
    np.testing.assert_allclose(gradient, 2 * a @ b @ b.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_reductions_of_tiles(target: str) -> None:
    @dlc.kernel(results=lambda x: (*(k.Result((n,), x.dtype) for n in (6, 16, 3)), *(k.Result(x.shape, x.dtype),) * 2))
    def reductions(x: Any, sums: Any, largest: Any, scalars: Any, centered: Any, columns: Any) -> None:
        for _ in k.grid(1):
            tile = x.load(0, 0, width=(6, 16))
            sums.store(0, value=tile.sum(1))
            largest.store(0, value=tile.max(axis=0))
            scalars.store(0, value=k.stack([tile.min(), tile[1].sum(), tile[-1].max()]))
            centered.store(0, 0, value=tile - tile.max(1, keepdims=True) + tile.sum(0, keepdims=True) + tile[2])
            columns.store(0, 0, value=k.iota(6, x.dtype).reshape(6, 1) + k.iota((6, 16), x.dtype, axis=1))

    x = normal(6, 16)
    sums, largest, scalars, centered, columns = map(np.asarray, dlc.jit(target=target)(reductions)(x))
    np.testing.assert_allclose(sums, x.sum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(largest, x.max(0))
    np.testing.assert_allclose(scalars, [x.min(), x[1].sum(), x[-1].max()], rtol=1e-5)
    np.testing.assert_allclose(centered, x - x.max(1, keepdims=True) + x.sum(0) + x[2], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(columns, np.arange(6)[:, None] + np.arange(16))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_masks(dtype: Any, target: str) -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def shifted(x: Any, y: Any) -> None:
        """Adds the element above and to the left, and 3 for those outside."""
        rows, columns = x.shape
        for i in k.grid(rows):
            for j in k.range(0, columns, 8):
                y.store(i, j, value=x.load(i - 1, j - 1, width=8, fill=3) + x.load(i, j, width=8, fill=0), masked=True)

    for shape in ((3, 8), (4, 13), (1, 1)):
        x = (normal(*shape) * 20).astype(dtype)
        padded = np.pad(x, ((1, 0), (1, 0)), constant_values=3)[:-1, :-1]
        np.testing.assert_array_equal(dlc.jit(target=target)(shifted)(x), x + padded)


@pytest.mark.parametrize("target", TARGETS)
def test_strips(target: str) -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def doubled(x: Any, y: Any) -> None:
        for i, rows in k.strips(x.shape[0], 4):
            for j, lanes in k.strips(x.shape[1], 8):
                y.store(i, j, value=2 * x.load(i, j, width=(rows, lanes)))

    for shape in ((3, 5), (8, 16), (9, 19)):
        x = normal(*shape)
        np.testing.assert_array_equal(dlc.jit(target=target)(doubled)(x), 2 * x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int8])
def test_shifts(dtype: Any, target: str) -> None:
    @dlc.kernel(results=lambda x: k.Result((3, *x.shape), x.dtype))
    def shifts(x: Any, y: Any) -> None:
        for i in k.grid(x.shape[0]):
            y[0, i], y[1, i], y[2, i] = x[i] << 3, x[i] >> 2, x[i] >> 0

    x = np.array([-128, -5, -1, 0, 1, 77, 127]).astype(dtype)
    np.testing.assert_array_equal(dlc.jit(target=target)(shifts)(x), [x << 3, x >> 2, x])


@dlc.kernel(results=lambda x, ids: k.Result(ids.shape, x.dtype), checked=True)
def gather(x: Any, ids: Any, y: Any) -> None:
    for i in k.grid(ids.shape[0]):
        y[i] = x[ids[i]]


@pytest.mark.parametrize("target", TARGETS)
def test_checks_at_run_time(target: str) -> None:
    x, call = np.arange(5.0), dlc.jit(target=target)(gather)
    batched = dlc.jit(target=target)(dlc.vmap(gather, in_axes=(None, 0)))
    np.testing.assert_array_equal(np.asarray(call(x, np.array([4, 0, 2]))), [4, 0, 2])
    for ids, index in (([1, 7, 2], 7), ([-1, 0, 1], -1)):
        message = rf"test_tiles.py:\d+: kernel gather: index {index} of x is not within 0..4: axis 0 of shape \(5,\)"
        with pytest.raises(dlc.DlcError, match=message):
            np.asarray(call(x, np.array(ids)))
        with pytest.raises(dlc.DlcError, match=message):
            np.asarray(batched(x, np.array([[0, 0, 0], ids])))


def test_indices_that_are_certainly_out_of_bounds() -> None:
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype), checked=True)
    def outside(x: Any, y: Any) -> None:
        for i in k.grid(x.shape[0]):
            y[i] = x[i + 5]

    with pytest.raises(dlc.ShapeError, match=r"index 5..9 of x is not within 0..4"):
        outside(np.arange(5.0))


def test_errors_of_tiles() -> None:
    def run(body: Any) -> None:
        dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype, fill=0))(body)(np.zeros((8, 8), np.float32))

    def mismatched(x: Any, y: Any) -> None:
        for _ in k.grid(1):
            x.load(0, 0, width=(4, 4)) + x.load(0, 0, width=3)

    def repeated(x: Any, y: Any) -> None:
        for _ in k.grid(1):
            x.load(0, 0, width=(4, 4), axis=(1, 1))

    def large(x: Any, y: Any) -> None:
        for _ in k.grid(1):
            k.full((128, 64), 0, x.dtype)

    def dynamic(x: Any, y: Any) -> None:
        for i in k.grid(1):
            x.load(0, 0, width=(4, 4))[i]

    def shifted(x: Any, y: Any) -> None:
        for _ in k.grid(1):
            x[0, 0] >> 1

    def multiplied(x: Any, y: Any) -> None:
        for _ in k.grid(1):
            k.dot(x.load(0, 0, width=(4, 4)), x.load(0, 0, width=(2, 4)))

    for body, error, message in (
        (mismatched, dlc.ShapeError, r"vectors of shapes \(4, 4\) and \(3,\); expected shapes that broadcast"),
        (repeated, dlc.ShapeError, r"axis \(1, 1\) of x for 2 sizes; expected one axis per size"),
        (large, dlc.ShapeError, r"k.full: width \(128, 64\); a row of a value has at most 128 elements"),
        (dynamic, dlc.ShapeError, r"expected a Python integer below 4"),
        (shifted, dlc.DTypeError, ">> of float32 values; expected integers"),
        (multiplied, dlc.ShapeError, r"k.dot of values of shapes \(4, 4\) and \(2, 4\); expected tiles \[m, p\] and \[p, n\]"),
    ):
        with pytest.raises(error, match=message):
            run(body)

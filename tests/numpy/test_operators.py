"""Operators, methods and indexing of traced arrays: what NumPy's arrays do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc

draw = np.random.default_rng(2)
X = draw.standard_normal((3, 4)).astype(np.float32)
Y = draw.standard_normal((3, 4)).astype(np.float32)
CUBE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
FLAGS = X > 0

EXPRESSIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "arithmetic": (lambda x, y: -x + y * 2 - x / y + abs(x), (X, Y)),
    "reflected": (lambda x: 1 - x + 2 * x - 3 / (x + 10) + (4 + x), (X,)),
    "whole": (lambda x, y: x // y + x % y, (X, Y)),
    "whole_reflected": (lambda x: 7 // x + 7 % x, (X,)),
    "powers": (lambda x: x**2 + 2**x, (X,)),
    "products": (lambda x, y: x @ y.T, (X, Y)),
    "array_on_the_left": (lambda x: Y @ x.T + Y[:, :3] * 2, (X,)),
    "comparisons": (lambda x, y: (x < y) | (x > 1) & (x != y), (X, Y)),
    "equalities": (lambda x, y: (x == y) | (x <= y) & (x >= y), (X, Y)),
    "not": (lambda f: ~f, (FLAGS,)),
    "row": (lambda x: x[1], (CUBE,)),
    "last": (lambda x: x[-1, -2], (CUBE,)),
    "element": (lambda x: x[1, 2, 3], (CUBE,)),
    "slices": (lambda x: x[:2, 1:, ::2], (CUBE,)),
    "backwards": (lambda x: x[::-1, 3:0:-2], (CUBE,)),
    "none": (lambda x: x[None, :, None, 0], (CUBE,)),
    "ellipsis": (lambda x: x[..., 1] + x[0, ..., 2], (CUBE,)),
    "empty": (lambda x: x[2:1], (CUBE,)),
    "out_of_range": (lambda x: x[1:99, -99:2], (CUBE,)),
    "taken": (lambda x: x[:, np.array([[0, 3], [-1, 1]])], (CUBE,)),
    "taken_by_argument": (lambda x, i: x[i], (CUBE, np.array([2, 0, 0]))),
    "taken_and_sliced": (lambda x, i: x[1:, i, ::2], (CUBE, np.array([2, 0, 0]))),
    "reductions": (lambda x: x.sum(1) + x.mean(1) + x.max(1) - x.min(1) + x.prod(1) / 1e4, (X,)),
    "spread": (lambda x: x.var(axis=0) + x.std(axis=0), (X,)),
    "flags": (lambda f: f.any(0) | f.all(0), (FLAGS,)),
    "places": (lambda x: x.argmax(1) - x.argmin(1), (X,)),
    "shapes": (lambda x: x.reshape(5, 12).T.reshape(-1, 6).swapaxes(0, 1), (CUBE,)),
    "more_shapes": (lambda x: x.transpose(2, 0, 1).reshape((1, 5, 12)).squeeze().flatten(), (CUBE,)),
    "transposed": (lambda x: x.transpose() + x.transpose((2, 1, 0)), (CUBE,)),
    "matrices": (lambda x: x.mT, (CUBE,)),
    "ravel": (lambda x: x.ravel(), (CUBE,)),
    "clip": (lambda x: x.clip(-1, 1), (X,)),
    "dot": (lambda x, y: x.dot(y.T), (X, Y)),
    "astype": (lambda x: x.astype(np.int32), (10 * X,)),
    "unpacked": (lambda x: sum(row * k for k, row in enumerate(x)), (X,)),
    "sizes": (lambda x: x * (x.ndim + x.size + len(x) + x.shape[1]), (X,)),
}


@pytest.mark.parametrize(("function", "arguments"), EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expression(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    got, expected = np.asarray(dlc.jit(num_threads=1)(function)(*arguments)), np.asarray(function(*arguments))
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


F32, F16, F64, I32, I8, U8, BOOL = (np.dtype(n) for n in ("f4", "f2", "f8", "i4", "i1", "u1", "?"))


@pytest.mark.parametrize("dtype", [F32, F16, F64, I32, I8, U8])
@pytest.mark.parametrize("number", [2, 1.5, True], ids=["int", "float", "bool"])
def test_numbers_are_weak(dtype: np.dtype, number: float) -> None:
    """A number, written or passed, takes the dtype of the array it meets, as in NumPy 2."""
    x = np.array([1, 2, 3], dtype)
    expected = x + number
    for got in (dlc.jit(lambda x: x + number)(x), dlc.jit(lambda x: number + x)(x), dlc.jit(lambda x, n: x + n)(x, number)):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_numbers_among_themselves() -> None:
    """What two weak numbers make is weak too."""
    x = np.ones(3, np.float32)
    for function in (lambda x, n: x * (n + 1), lambda x, n: x * (2 * n), lambda x, n: x * -n, lambda x, n: x + n**2):
        got = dlc.jit(function)(x, 2.5)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, function(x, 2.5), rtol=1e-6)


def test_numpy_scalars_are_not_weak() -> None:
    x = np.ones(3, np.float32)
    assert dlc.jit(lambda x, n: x + n)(x, np.float64(1)).dtype == np.float64

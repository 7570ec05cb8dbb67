"""Operators, methods and indexing of traced arrays against NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp

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
    "numbers_beyond_64_bits": (lambda x: (x * 10**20 - 2**70) / 10**30, (X,)),
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
    """A Python scalar, literal or argument, takes the dtype of the array operand, as in NumPy 2."""
    x = np.array([1, 2, 3], dtype)
    expected = x + number
    for got in (dlc.jit(lambda x: x + number)(x), dlc.jit(lambda x: number + x)(x), dlc.jit(lambda x, n: x + n)(x, number)):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_numbers_among_themselves() -> None:
    """The result of two weakly typed scalars is weakly typed."""
    x = np.ones(3, np.float32)
    for function in (lambda x, n: x * (n + 1), lambda x, n: x * (2 * n), lambda x, n: x * -n, lambda x, n: x + n**2):
        got = dlc.jit(function)(x, 2.5)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, function(x, 2.5), rtol=1e-6)


def test_numpy_scalars_are_not_weak() -> None:
    x = np.ones(3, np.float32)
    assert dlc.jit(lambda x, n: x + n)(x, np.float64(1)).dtype == np.float64


def agrees(function: Callable[..., Any], *arguments: Any, by_numpy: Callable[..., Any] | None = None) -> None:
    """Assert that a traced function computes what it computes on NumPy arrays."""
    got, expected = dlc.jit(function)(*arguments), (by_numpy or function)(*arguments)
    for g, e in zip(got, expected, strict=True):
        assert (g.dtype, g.shape) == (np.asarray(e).dtype, np.shape(e))
        np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-5)


WHOLE = np.array([[7, -7, 3, 1], [0, 5, -2, 4], [9, 3, 3, 2]], np.int32)


def test_operators_of_integers_and_bools() -> None:
    agrees(
        lambda i, f: (i << 2, i >> 1, 100 >> abs(i), i & 6, i | 1, i ^ 5, ~i, +i, f ^ True, f & ~f, f + f, f * f), WHOLE, FLAGS
    )
    agrees(lambda i: (*divmod(i, 3), *divmod(20, abs(i) + 1), i < 2**40, i > -(2**40), i == 2**40, i <= 2**40), WHOLE)


def test_rounding_is_a_method() -> None:
    agrees(lambda x: (round(x), round(x, 1), x.round(2)), X, by_numpy=lambda x: (np.round(x), np.round(x, 1), np.round(x, 2)))


ROWS, COLUMNS = np.array([2, 0, -1]), np.array([[0, 3, 1]])
KEYS: list[Any] = [
    (ROWS, ROWS), (ROWS, slice(None), ROWS), (slice(None), ROWS, ROWS), (0, slice(None), ROWS), (ROWS[:, None], COLUMNS),
    (..., ROWS), (None, ROWS, ..., 1), (slice(1, None), COLUMNS, None, slice(None, None, 2)), [0, 2], (slice(None), [1, 1]),
    (0, ROWS), (ROWS, 1), (ROWS, None, 1), (..., None, 2), ([],), (FLAGS,), (slice(None), np.arange(4) > 1), (2, FLAGS[0]),
    (CUBE > 30,), (slice(5, 1), ROWS), (np.int64(2), ..., np.array(1)), (slice(None, None, -2), ROWS, slice(3, 0, -1)),
    (slice(None), ROWS, ..., 1), (None, ROWS, ROWS, ..., ROWS),
]  # fmt: skip
TRACED_KEYS: list[Callable[[Any], Any]] = [
    lambda i: (i, i), lambda i: (i, slice(None), i), lambda i: (slice(None), i, 0), lambda i: (i[:, None], i), lambda i: i[0],
    lambda i: (..., i[0], i[1]), lambda i: (None, i, None),
    lambda i: (slice(None), i, ..., i[0]),
]  # fmt: skip


def test_indexing_with_arrays() -> None:
    agrees(lambda x, i: [x[key] for key in KEYS] + [x[key(i)] for key in TRACED_KEYS], CUBE, ROWS)


class Plain:
    """A plain array with the update methods of traced arrays."""

    def __init__(self, x: np.ndarray) -> None:
        self.at = dnp.at(x)


def test_updates() -> None:
    def updated(x: Any, key: Any, method: str, value: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return getattr(x.at[key], method)(value)
        y = x.copy()
        if method == "set":
            y[key] = value
        else:
            {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}[method].at(
                y, key, value
            )
        return y

    def function(x: Any, i: Any, v: Any) -> list[Any]:
        return [
            *(updated(x, key, method, 7) for key in (0, (1, 2), np.s_[1:, ::2], np.s_[::-1, None, 1]) for method in ("set", "add", "max")),
            updated(x, np.s_[1], "set", v),
            updated(x, np.s_[:, 1:3], "set", v[None, 1:3]),
            updated(x, np.s_[::-2, 3:0:-1], "subtract", v[:3]),
            updated(x, np.s_[:], "multiply", v),
            updated(x, np.s_[2:2], "set", 1),
            updated(x, i, "set", v),
            updated(x, i, "add", 1),
            updated(x, (i, i), "add", v[:3]),
            updated(x, (slice(None), i), "min", -0.5),
            updated(x, ROWS, "multiply", 2),
            updated(x, FLAGS, "set", 0),
        ]  # fmt: skip

    arguments = X, np.array([2, 0, 2]), Y[0]
    agrees(function, *arguments)
    # The same updates on plain arrays.
    for got, want in zip(function(Plain(X), *arguments[1:]), function(*arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    masked = dlc.jit(lambda x: (x.at[x > 0].set(0), x.at[x[:, 0] > 0].add(X[0]), x.at[1:].divide(2), x.at[0].get()))(X)
    expected = np.where(X > 0, 0, X), np.where(X[:, :1] > 0, X + X[0], X), np.concatenate([X[:1], X[1:] / 2]), X[0]
    for got, want in zip(masked, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_scalar_update_at_a_traced_index() -> None:
    got = dlc.jit(lambda x, i: x.at[i].set(7))(np.arange(3), np.array(-1))
    np.testing.assert_array_equal(got, [0, 1, 7])


def test_methods_and_properties() -> None:
    agrees(
        lambda x: (
            x.sum(axis=1, dtype=np.float64), x.cumsum(0), x.cumprod(axis=1), x.take([1, 0], axis=1), x.repeat(2, 0), x.T, x.trace(),
            x.diagonal(1), x.argsort(1), np.argsort(x, 0), x.mean((0, 1)), x.std(ddof=1), x.reshape((2, 6)), x.ravel(), x.copy(),
            x.max(0, keepdims=True), x.min(initial=-9.0), x.any(), x.all(axis=0), x.clip(0, 1), x.clip(min=0), x.astype("f8"),
            x.dot(x.T), x.swapaxes(0, 1).mT, x.conj(), x.real, (x > 0).copy(),
        ), X,
    )  # fmt: skip


def test_the_mean_as_an_integer_is_truncated() -> None:
    agrees(lambda x: (np.mean(9 * x, dtype=np.int32), x.mean(1, np.int8), np.mean(x, 0, np.float64)), X)


def test_numpys_functions_are_those_of_dlc() -> None:
    def function(x: Any, y: Any) -> list[Any]:
        return [
            np.tanh(x), np.sum(x, axis=1), np.concatenate([x, y]), np.stack((x, y), axis=1), np.where(x > 0, x, y), np.linalg.norm(x),
            np.mean(x, 0, keepdims=True), np.clip(x, 0, 1),
            np.add.reduce(x), np.maximum.reduce(x, axis=1), np.add.outer(x[0], y[0]), np.einsum("ij,ij->i", x, y), np.zeros_like(x),
            np.transpose(x), np.var(x, ddof=1), np.reshape(x, (2, 6)), np.matmul(x, y.T), X @ np.swapaxes(y, 0, 1), X + x, np.float32(2) * x,
        ]  # fmt: skip

    agrees(function, X, Y)


_INTEGER_UFUNCS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.gcd, np.logical_xor)
_FLOAT_UFUNCS = (np.fmax, np.fmin, np.hypot, np.logaddexp, np.logaddexp2, np.maximum, np.multiply)


@pytest.mark.parametrize("namespace", [np, dnp], ids=["numpy", "dlc.numpy"])
def test_reductions_and_scans_by_ufuncs(namespace: Any) -> None:
    numbers = np.array([[3, 1, 4, 1, 7], [5, 9, 2, 6, 0]], np.int32)

    def function(x: Any, namespace: Any) -> list[Any]:
        results = []
        for ufuncs, y in ((_INTEGER_UFUNCS, x), (_FLOAT_UFUNCS, x.astype(np.float64))):
            for ufunc in (getattr(namespace, ufunc.__name__) for ufunc in ufuncs):
                results += [ufunc.reduce(y), ufunc.reduce(y, axis=(0, -1)), ufunc.reduce(y, 1, keepdims=True)]
                results += [ufunc.accumulate(y, axis=1), ufunc.reduceat(y, [0, 3, 2], axis=1), ufunc.outer(y[0], y)]
        return results

    for got, want in zip(
        dlc.jit(lambda x: function(x, namespace), target="reference")(numbers), function(numbers, np), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-13, strict=True)


def test_reductions_by_ufuncs_of_edge_cases() -> None:
    @dlc.jit(target="reference")
    def function(empty, x):
        outer = np.add.outer(1j * x, x)
        return dnp.logaddexp.reduce(empty), dnp.bitwise_and.reduce(x, axis=()), dnp.hypot.reduce(x[:1]), outer

    empty, x = np.zeros((0, 3)), np.array([6, 3])
    want = np.logaddexp.reduce(empty), x, np.hypot.reduce(x[:1]), np.add.outer(1j * x, x)
    for a, b in zip(function(empty, x), want, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    with pytest.raises(dlc.ShapeError, match="no identity"):
        dlc.jit(lambda x: np.fmax.reduce(x))(empty)
    with pytest.raises(dlc.DTypeError, match="dtype float64 is not supported"):
        dlc.jit(lambda x: np.bitwise_or.reduce(x))(empty)
    with pytest.raises(dlc.UnsupportedError, match="reduce with where on a traced array"):
        dlc.jit(lambda x: np.hypot.reduce(x, where=x > 0))(x)


def test_ufunc_methods() -> None:
    x = np.array([[3, 1, 4, 1], [5, 9, 2, 6]], np.float32)

    @dlc.jit(target="reference")
    def function(x):
        return (
            np.add.reduce(x), np.add.accumulate(x, 1), np.maximum.accumulate(x, 1), np.logical_or.accumulate(x > 3, 1), np.logical_and.accumulate(x - 1),
            np.add.reduceat(x, [0, 2, 1], axis=1), np.add.reduceat(x, []), np.multiply.outer(x[0], x[1]), x.view("int32"),
        )  # fmt: skip

    expected = (
        np.add.reduce(x), np.add.accumulate(x, 1), np.maximum.accumulate(x, 1), np.logical_or.accumulate(x > 3, 1), np.logical_and.accumulate(x - 1),
        np.add.reduceat(x, [0, 2, 1], axis=1), np.add.reduceat(x, []), np.multiply.outer(x[0], x[1]), x.view("int32"),
    )  # fmt: skip
    for got, want in zip(function(x), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(dlc.UnsupportedError, match=r"x\.at\[indices\]\.add"):
        dlc.jit(lambda x: np.add.at(x, 0, 1.0))(x)
    with pytest.raises(dlc.DlcError, match="axis None"):
        dlc.jit(lambda x: np.add.accumulate(x, None))(x)
    with pytest.raises(dlc.DTypeError, match="expected bool"):
        dlc.jit(lambda x: np.logical_or.accumulate(x, dtype="f4"))(x)
    with pytest.raises(dlc.UnsupportedError, match="dtypes of the same size"):
        dlc.jit(lambda x: x.view("int8"))(x)

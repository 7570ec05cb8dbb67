"""Every function of dlc.numpy against NumPy's, on plain arrays and traced."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
import dlc.numpy as dnp

draw = np.random.default_rng(0)
X = draw.standard_normal((3, 4)).astype(np.float32)
SIZE = np.abs(X)
Y = draw.standard_normal((3, 4)).astype(np.float32)
ROW = draw.standard_normal(4).astype(np.float32)
CUBE = draw.standard_normal((2, 3, 4)).astype(np.float32)
WHOLE = np.array([[7, -7, 3], [0, 5, -2]], np.int32)
DIVISORS = np.array([[2, 2, -2], [3, -3, 5]], np.int32)
BYTES = np.array([[200, 100, 3]], np.uint8)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e-30, 2.5, -2.5, 1.5], np.float32)
FLAGS = np.array([[True, False, True, False]] * 3)


@dataclass(frozen=True)
class Case:
    """`function(*arguments)` computes what NumPy's `expected` does; `exact` asks for equal values."""

    function: Callable[..., Any]
    expected: Callable[..., Any]
    arguments: tuple[Any, ...]
    exact: bool = False


def same(name: str, *arguments: Any, exact: bool = False) -> Case:
    return Case(getattr(dnp, name), getattr(np, name), arguments, exact)


def called(name: str, x: np.ndarray = CUBE, /, *arguments: Any, exact: bool = True, **settings: Any) -> Case:
    """`name` of either module on one traced array, other arguments given while it is traced."""
    return Case(
        lambda a: getattr(dnp, name)(a, *arguments, **settings),
        lambda a: getattr(np, name)(a, *arguments, **settings),
        (x,),
        exact,
    )


def either(function: Callable[[Any, Any], Any]) -> Case:
    """`function(module, array)` with either module."""
    return Case(lambda a: function(dnp, a), lambda a: function(np, a), (CUBE,), exact=True)


def binary(name: str) -> list[Case]:
    return [
        same(name, X, Y),
        same(name, X, ROW),
        same(name, CUBE, X),
        same(name, X, 2.0),
        same(name, 3, X),
        same(name, WHOLE, 2),
    ]


def choosing(name: str) -> list[Case]:
    pairs = (X, Y), (WHOLE, 2), (SPECIAL, np.float32(1))
    return [same(name, *pair, exact=True) for pair in pairs]


def reduction(name: str) -> list[Case]:
    return [
        same(name, CUBE),
        called(name, CUBE, 1, exact=False),
        called(name, CUBE, (0, -1), keepdims=True, exact=False),
        same(name, FLAGS if name in ("any", "all") else WHOLE),
    ]


def place(name: str) -> list[Case]:
    return [called(name), called(name, WHOLE), called(name, CUBE, 1), called(name, CUBE, -1, keepdims=True)]


def cast(x: np.ndarray, to: Any) -> Case:
    return Case(lambda x: dnp.astype(x, to), lambda x: x.astype(to), (x,), exact=True)


PADS = [(1, 0), (0, 2), (1, 1)]
CASES: dict[str, list[Case]] = {
    **{name: binary(name) for name in ("add", "subtract", "multiply")},
    **{name: choosing(name) for name in ("maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater")},
    "greater_equal": choosing("greater_equal"),
    "divide": [same("divide", *pair) for pair in ((X, Y), (X, 2), (WHOLE, DIVISORS), (SPECIAL, np.float32(0)))],
    "floor_divide": [same("floor_divide", *pair) for pair in ((WHOLE, DIVISORS), (X, ROW), (BYTES, 7))],
    "remainder": [same("remainder", *pair) for pair in ((WHOLE, DIVISORS), (X, ROW), (X, 0.5))],
    "power": [same("power", *pair) for pair in ((SIZE, Y), (X, 2), (X, 3.0), (SIZE, 0.5), (WHOLE, 3), (2.0, X))],
    **{name: [same(name, FLAGS, ~FLAGS), same(name, FLAGS, X)] for name in ("logical_and", "logical_or")},
    "logical_not": [same("logical_not", FLAGS), same("logical_not", WHOLE)],
    **{name: [same(name, x, exact=True) for x in (X, SPECIAL, WHOLE)] for name in ("negative", "abs", "sign")},
    **{name: [same(name, x) for x in (X, SPECIAL, WHOLE)] for name in ("exp", "expm1", "sin", "cos", "tan", "tanh")},
    **{name: [same(name, x) for x in (SIZE, SPECIAL, WHOLE)] for name in ("sqrt", "log", "log1p", "log2")},
    "reciprocal": [same("reciprocal", X), same("reciprocal", SPECIAL)],
    "square": [same("square", X), same("square", WHOLE)],
    **{name: [same(name, x, exact=True) for x in (X * 3, SPECIAL)] for name in ("floor", "ceil", "round")},
    **{name: [same(name, x, exact=True) for x in (X, SPECIAL)] for name in ("isnan", "isinf")},
    "where": [same("where", *given, exact=True) for given in ((FLAGS, X, Y), (FLAGS, X, 0), (WHOLE, 1.0, 2))],
    "clip": [same("clip", *given, exact=True) for given in ((X, -0.5, 0.5), (X, None, 0.5), (WHOLE, -1, 4), (X, ROW, None))],
    "astype": [
        *(cast(X * 3, to) for to in (np.int32, np.float16, np.float64, np.bool_)),
        *(cast(WHOLE, to) for to in (np.float32, np.uint8, np.int64)),
        cast(FLAGS, np.int8),
    ],
    "matmul": [
        same("matmul", *pair) for pair in ((X, Y.T), (X, ROW), (ROW, X.T), (CUBE, Y.T), (ROW, ROW), (WHOLE, DIVISORS.T))
    ],
    "dot": [
        same("dot", *pair) for pair in ((X, Y.T), (CUBE, ROW), (X, np.float32(2)), (CUBE, CUBE[0].T), (X, CUBE.swapaxes(1, 2)))
    ],
    **{name: reduction(name) for name in ("sum", "prod", "max", "min", "mean", "var", "std", "any", "all")},
    **{name: place(name) for name in ("argmax", "argmin")},
    "reshape": [called("reshape", CUBE, shape) for shape in ((4, 6), (-1, 2), -1)],
    "permute_dims": [called("permute_dims", CUBE, (2, 0, -2))],
    "transpose": [called("transpose"), called("transpose", CUBE, (1, 0, 2))],
    "matrix_transpose": [called("matrix_transpose")],
    "swapaxes": [called("swapaxes", CUBE, 0, -1)],
    "expand_dims": [called("expand_dims", CUBE, axis=axis) for axis in (0, 1, -1)],
    "squeeze": [called("squeeze", CUBE[:, :1]), called("squeeze", CUBE[:1, :1], axis=1)],
    "broadcast_to": [called("broadcast_to", CUBE, (5, 2, 3, 4))],
    "concat": [either(lambda m, a: m.concat([a, a[:, :1], 2 * a], axis=1)), either(lambda m, a: m.concat([a, a], axis=-1))],
    "concatenate": [either(lambda m, a: m.concatenate([a, a]))],
    "stack": [either(lambda m, a, axis=axis: m.stack([a, 2 * a], axis=axis)) for axis in (0, 1, -1)],
    "flip": [called("flip"), called("flip", CUBE, axis=1), called("flip", CUBE, axis=(0, -1))],
    "pad": [
        called("pad", CUBE, PADS),
        called("pad", CUBE, PADS, constant_values=3),
        *(called("pad", CUBE, PADS, mode=mode) for mode in ("edge", "reflect", "wrap")),
    ],
    "take": [called("take", CUBE, np.array([[2, 0], [-1, 1]]), axis=1)],
    "asarray": [called("asarray"), called("asarray", CUBE, np.float64)],
    "zeros": [either(lambda m, a: a + m.zeros((3, 4), np.float32))],
    "ones": [either(lambda m, a: a + m.ones(4, np.float32))],
    "full": [either(lambda m, a: a + m.full((3, 1), 7, np.float32))],
    "zeros_like": [either(lambda m, a: a + m.zeros_like(a))],
    "ones_like": [either(lambda m, a: a + m.ones_like(a))],
    "arange": [either(lambda m, a: a + m.arange(4)), either(lambda m, a: a * m.arange(1, 9, 2, dtype=np.float32))],
    "eye": [either(lambda m, a: a @ m.eye(4, dtype=np.float32)), either(lambda m, a: a + m.eye(3, 4, dtype=np.float32))],
}


def listed() -> list[Any]:
    return [pytest.param(c, id=f"{name}{k}") for name, cases in CASES.items() for k, c in enumerate(cases)]


def test_every_function_has_a_case() -> None:
    functions = {n for n in dnp.__all__ if inspect.isfunction(getattr(dnp, n))}
    assert functions == set(CASES)


def assert_same(got: Any, expected: Any, exact: bool) -> None:
    got, expected = np.asarray(got), np.asarray(expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    if exact or got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("case", listed())
def test_on_plain_arrays(case: Case) -> None:
    with np.errstate(all="ignore"):
        assert_same(case.function(*case.arguments), case.expected(*case.arguments), case.exact)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("case", listed())
def test_traced(case: Case, target: str) -> None:
    compiled = dlc.jit(target=target, num_threads=1)(case.function)
    with np.errstate(all="ignore"):
        assert_same(compiled(*case.arguments), case.expected(*case.arguments), case.exact)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floats(dtype: Any) -> None:
    x, y = X.astype(dtype), Y.astype(dtype)

    def function(x: Any, y: Any) -> Any:
        return dnp.tanh(x + y) * 2 - dnp.exp(x)

    got = np.asarray(dlc.jit(function)(x, y))
    wide = x.astype(np.float64), y.astype(np.float64)
    assert got.dtype == dtype
    tolerance = {2: 0.05, 8: 1e-12}[got.dtype.itemsize]
    np.testing.assert_allclose(got.astype(np.float64), np.tanh(sum(wide)) * 2 - np.exp(wide[0]), rtol=tolerance, atol=tolerance)

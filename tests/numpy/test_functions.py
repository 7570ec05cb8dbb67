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


def moved(function: Callable[[Any], Any], x: np.ndarray = CUBE) -> Case:
    """The same call on dlc.numpy and on NumPy, as `function` of the module."""
    return Case(lambda a: function(dnp)(a), lambda a: function(np)(a), (x,), exact=True)


CASES: dict[str, list[Case]] = {
    **{
        name: [same(name, X, Y), same(name, X, ROW), same(name, CUBE, X), same(name, X, 2.0), same(name, 3, X), same(name, WHOLE, 2)]
        for name in ("add", "subtract", "multiply")
    },
    **{
        name: [same(name, X, Y, exact=True), same(name, WHOLE, 2, exact=True), same(name, SPECIAL, np.float32(1), exact=True)]
        for name in ("maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
    "divide": [same("divide", X, Y), same("divide", X, 2), same("divide", WHOLE, DIVISORS), same("divide", SPECIAL, np.float32(0))],
    "floor_divide": [same("floor_divide", WHOLE, DIVISORS), same("floor_divide", X, ROW), same("floor_divide", BYTES, 7)],
    "remainder": [same("remainder", WHOLE, DIVISORS), same("remainder", X, ROW), same("remainder", X, 0.5)],
    "power": [
        same("power", np.abs(X), Y), same("power", X, 2), same("power", X, 3.0), same("power", np.abs(X), 0.5),
        same("power", WHOLE, 3), same("power", 2.0, X),
    ],
    **{name: [same(name, FLAGS, ~FLAGS), same(name, FLAGS, X)] for name in ("logical_and", "logical_or")},
    "logical_not": [same("logical_not", FLAGS), same("logical_not", WHOLE)],
    **{
        name: [same(name, X, exact=True), same(name, SPECIAL, exact=True), same(name, WHOLE, exact=True)]
        for name in ("negative", "abs", "sign")
    },
    **{name: [same(name, X), same(name, SPECIAL), same(name, WHOLE)] for name in ("exp", "expm1", "sin", "cos", "tan", "tanh")},
    **{name: [same(name, np.abs(X)), same(name, SPECIAL), same(name, WHOLE)] for name in ("sqrt", "log", "log1p", "log2")},
    "reciprocal": [same("reciprocal", X), same("reciprocal", SPECIAL)],
    "square": [same("square", X), same("square", WHOLE)],
    **{name: [same(name, X * 3, exact=True), same(name, SPECIAL, exact=True)] for name in ("floor", "ceil", "round")},
    **{name: [same(name, SPECIAL, exact=True), same(name, X, exact=True)] for name in ("isnan", "isinf")},
    "where": [same("where", FLAGS, X, Y, exact=True), same("where", FLAGS, X, 0, exact=True), same("where", WHOLE, 1.0, 2)],
    "clip": [
        same("clip", X, -0.5, 0.5, exact=True), same("clip", X, None, 0.5, exact=True), same("clip", WHOLE, -1, 4, exact=True),
        same("clip", X, ROW, None, exact=True),
    ],
    "astype": [
        Case(lambda x, t=t: dnp.astype(x, t), lambda x, t=t: x.astype(t), (x,), exact=True)
        for x, t in ((X * 3, np.int32), (WHOLE, np.float32), (X, np.float16), (X, np.float64), (FLAGS, np.int8), (X, np.bool_),
                     (WHOLE, np.uint8))
    ],
    "matmul": [
        same("matmul", X, Y.T), same("matmul", X, ROW), same("matmul", ROW, X.T), same("matmul", CUBE, Y.T),
        same("matmul", ROW, ROW), same("matmul", WHOLE, DIVISORS.T),
    ],
    "dot": [same("dot", X, Y.T), same("dot", CUBE, ROW), same("dot", X, np.float32(2)), same("dot", CUBE, CUBE[0].T), same("dot", X, CUBE.swapaxes(1, 2))],
    **{
        name: [
            same(name, CUBE), Case(lambda x, f=name: getattr(dnp, f)(x, 1), lambda x, f=name: getattr(np, f)(x, 1), (CUBE,)),
            Case(
                lambda x, f=name: getattr(dnp, f)(x, (0, -1), keepdims=True),
                lambda x, f=name: getattr(np, f)(x, (0, -1), keepdims=True), (CUBE,),
            ),
            *([same(name, WHOLE)] if name not in ("any", "all") else [same(name, FLAGS)]),
        ]
        for name in ("sum", "prod", "max", "min", "mean", "var", "std", "any", "all")
    },
    **{
        name: [
            same(name, CUBE, exact=True), same(name, WHOLE, exact=True),
            Case(lambda x, f=name: getattr(dnp, f)(x, 1), lambda x, f=name: getattr(np, f)(x, 1), (CUBE,), exact=True),
            Case(
                lambda x, f=name: getattr(dnp, f)(x, -1, keepdims=True),
                lambda x, f=name: getattr(np, f)(x, -1, keepdims=True), (CUBE,), exact=True,
            ),
        ]
        for name in ("argmax", "argmin")
    },
    "reshape": [moved(lambda m: lambda a: m.reshape(a, (4, 6))), moved(lambda m: lambda a: m.reshape(a, (-1, 2))), moved(lambda m: lambda a: m.reshape(a, -1))],
    "permute_dims": [moved(lambda m: lambda a: m.permute_dims(a, (2, 0, -2)))],
    "transpose": [moved(lambda m: lambda a: m.transpose(a)), moved(lambda m: lambda a: m.transpose(a, (1, 0, 2)))],
    "matrix_transpose": [moved(lambda m: lambda a: m.matrix_transpose(a))],
    "swapaxes": [moved(lambda m: lambda a: m.swapaxes(a, 0, -1))],
    "expand_dims": [moved(lambda m: lambda a: m.expand_dims(a, axis=k)) for k in (0, 1, -1)],
    "squeeze": [moved(lambda m: lambda a: m.squeeze(a), CUBE[:, :1]), moved(lambda m: lambda a: m.squeeze(a, axis=1), CUBE[:1, :1])],
    "broadcast_to": [moved(lambda m: lambda a: m.broadcast_to(a, (5, 2, 3, 4)))],
    "concat": [moved(lambda m: lambda a: m.concat([a, a[:, :1], 2 * a], axis=1)), moved(lambda m: lambda a: m.concat([a, a], axis=-1))],
    "concatenate": [moved(lambda m: lambda a: m.concatenate([a, a]))],
    "stack": [moved(lambda m: lambda a: m.stack([a, 2 * a], axis=k)) for k in (0, 1, -1)],
    "flip": [moved(lambda m: lambda a: m.flip(a)), moved(lambda m: lambda a: m.flip(a, axis=1)), moved(lambda m: lambda a: m.flip(a, axis=(0, -1)))],
    "pad": [
        moved(lambda m: lambda a: m.pad(a, [(1, 0), (0, 2), (1, 1)])),
        moved(lambda m: lambda a: m.pad(a, [(1, 0), (0, 2), (1, 1)], constant_values=3)),
        *(moved(lambda m, k=k: lambda a: m.pad(a, [(1, 0), (0, 2), (1, 1)], mode=k)) for k in ("edge", "reflect", "wrap")),
    ],
    "take": [moved(lambda m: lambda a: m.take(a, np.array([[2, 0], [-1, 1]]), axis=1))],
    "asarray": [moved(lambda m: lambda a: m.asarray(a)), moved(lambda m: lambda a: m.asarray(a, np.float64))],
    "zeros": [moved(lambda m: lambda a: a + m.zeros((3, 4), np.float32))],
    "ones": [moved(lambda m: lambda a: a + m.ones(4, np.float32))],
    "full": [moved(lambda m: lambda a: a + m.full((3, 1), 7, np.float32))],
    "zeros_like": [moved(lambda m: lambda a: a + m.zeros_like(a))],
    "ones_like": [moved(lambda m: lambda a: a + m.ones_like(a))],
    "arange": [moved(lambda m: lambda a: a + m.arange(k)) for k in (4,)] + [moved(lambda m: lambda a: a * m.arange(1, 9, 2, dtype=np.float32))],
    "eye": [moved(lambda m: lambda a: a @ m.eye(4, dtype=np.float32)), moved(lambda m: lambda a: a + m.eye(3, 4, dtype=np.float32))],
}  # fmt: skip


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

"""Arithmetic inside kernels against NumPy, on scalars and vectors, on every target."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import dlc
import dlc.kernels as k
from tests.targets import TARGETS

FLOATS = np.array([-3.5, -1, -0.5, 0.25, 1, 2.5, 7, 100], np.float32)
OTHER_FLOATS = np.array([2, -0.5, 4, 0.25, 3, -1, 0.5, 2], np.float32)
INTEGERS = np.array([-7, 7, -8, 8, 0, 5, -(2**31), 2**31 - 1], np.int32)
OTHER_INTEGERS = np.array([2, -2, 3, -3, 4, 0, -1, 5], np.int32)
UNSIGNED = np.array([0, 1, 7, 255, 128, 100, 3, 2], np.uint8)
OTHER_UNSIGNED = np.array([3, 2, 2, 16, 0, 7, 4, 1], np.uint8)

Binary = Callable[[Any, Any], Any]
ARITHMETIC: dict[str, Binary] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "reversed": lambda x, y: 3 - x,
    "negative": lambda x, y: -x,
    "select": lambda x, y: _where(x < y, x, y * 2),
    "or": lambda x, y: _where((x < y) | (x == 7), x, y),
    "and": lambda x, y: _where(~(x < y) & (x != 7), x, y),
}
DIVISIONS: dict[str, Binary] = {"quotient": lambda x, y: x // y, "remainder": lambda x, y: x % y}
BITS: dict[str, Binary] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x, y: ~x,
}


def _where(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y) if isinstance(condition, np.ndarray) else k.select(condition, x, y)


def check(
    functions: dict[str, Binary],
    expected: dict[str, np.ndarray],
    x: np.ndarray,
    y: np.ndarray,
    width: int,
    target: str,
    **tolerances: float,
) -> None:
    """Compare functions of the elements, by one kernel with a result for each, as scalars (width 0) or vectors."""

    def results(x: Any, y: Any) -> tuple[k.Result, ...]:
        return tuple(k.Result(x.shape, expected[name].dtype) for name in functions)

    def write(x: Any, y: Any, *results: Any) -> None:
        for i in k.grid(x.shape[0] // max(width, 1)):
            operands = [a.load(width * i, width=width) if width else a[i] for a in (x, y)]
            for result, function in zip(results, functions.values(), strict=True):
                if width:
                    result.store(width * i, value=function(*operands))
                else:
                    result[i] = function(*operands)

    # A kernel has a parameter for each result.
    names = "x", "y", *(f"result{position}" for position in range(len(functions)))
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    cast(Any, write).__signature__ = inspect.Signature(parameters)
    kernel = dlc.kernel(results=results)(write)
    for name, got in zip(functions, dlc.jit(target=target)(kernel)(x, y), strict=True):
        np.testing.assert_allclose(got, expected[name], err_msg=name, **{"rtol": 0, **tolerances})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize(
    ("x", "y", "functions"),
    [
        (FLOATS, OTHER_FLOATS, ARITHMETIC),
        (FLOATS.astype(np.float64), OTHER_FLOATS.astype(np.float64), ARITHMETIC),
        (INTEGERS, OTHER_INTEGERS, ARITHMETIC | DIVISIONS | BITS),
        (UNSIGNED, OTHER_UNSIGNED, ARITHMETIC | DIVISIONS | BITS),
    ],
    ids=["float32", "float64", "int32", "uint8"],
)
def test_arithmetic(x: np.ndarray, y: np.ndarray, functions: dict[str, Binary], width: int, target: str) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = {name: function(x, y).astype(x.dtype) for name, function in functions.items()}
    check(functions, expected, x, y, width, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [0, 8])
def test_functions(width: int, target: str) -> None:
    of_positive = ["sqrt", "log", "log2", "log1p"]
    of_all = ["exp", "exp2", "expm1", "sin", "cos", "tanh", "floor", "ceil", "trunc", "absolute"]
    functions: dict[str, Binary] = {name: lambda x, _, name=name: getattr(k, name)(x) for name in of_all}
    functions |= {name: lambda _, y, name=name: getattr(k, name)(y) for name in of_positive}
    x, y = FLOATS / 4, np.abs(FLOATS)
    expected = {name: getattr(np, name)((y if name in of_positive else x).astype(np.float64)) for name in functions}
    expected = {name: value.astype(np.float32) for name, value in expected.items()}
    check(functions, expected, x, y, width, target, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [0, 8])
def test_functions_of_several_operands(width: int, target: str) -> None:
    x, y = np.abs(FLOATS), OTHER_FLOATS
    functions: dict[str, Binary] = {
        "fma": lambda x, y: k.fma(x, y, 0.5),
        "power": lambda x, y: k.power(x, y),
        "extrema": lambda x, y: k.maximum(x, y) - k.minimum(x, 1),
        "roots": lambda x, y: k.round(x) + k.rsqrt(x) + k.erf(y) * 0,
    }
    expected = {
        "fma": x * y + 0.5,
        "power": (x.astype(np.float64) ** y).astype(np.float32),
        "extrema": np.maximum(x, y) - np.minimum(x, 1),
        "roots": np.rint(x) + 1 / np.sqrt(x),
    }
    check(functions, expected, x, y, width, target, rtol=2e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [0, 8])
@pytest.mark.parametrize("x", [FLOATS, INTEGERS, UNSIGNED, np.array([True, False] * 4)], ids=lambda x: x.dtype.name)
def test_conversions(x: np.ndarray, width: int, target: str) -> None:
    positive = np.abs(x)
    dtypes = [np.dtype(t) for t in ["float32", "float64", "float16", "int8", "uint8", "int32", "uint32", "int64", "bool"]]
    # The conversion of a negative float to an unsigned integer is undefined.
    of_positive = [t for t in dtypes if t.kind == "u" and x.dtype.kind == "f"]
    functions: dict[str, Binary] = {t.name: lambda x, y, t=t: (y if t in of_positive else x).astype(t.type) for t in dtypes}
    with np.errstate(all="ignore"):
        expected = {t.name: (positive if t in of_positive else x).astype(t) for t in dtypes}
    check(functions, expected, x, positive, width, target)


@pytest.mark.parametrize("target", TARGETS)
def test_reductions_of_vectors(target: str) -> None:
    @dlc.kernel(results=lambda x: k.Result((x.shape[0], 4), x.dtype, fill=0))
    def reductions(x: Any, y: Any) -> None:
        for row in k.grid(x.shape[0]):
            v = x.load(row, 0, width=8)
            y[row, 0], y[row, 1], y[row, 2] = v.sum(), v.max(), v.min()
            y[row, 3] = (v * k.iota(8, x.dtype) + k.full(8, 1, x.dtype)).sum()

    for x in (np.stack([FLOATS, OTHER_FLOATS]), np.stack([INTEGERS, OTHER_INTEGERS]) // 100):
        expected = np.stack([x.sum(1), x.max(1), x.min(1), (x * np.arange(8) + 1).sum(1)], 1).astype(x.dtype)
        np.testing.assert_allclose(dlc.jit(target=target)(reductions)(x), expected, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_vectors_along_other_axes(target: str) -> None:
    @dlc.kernel(results=lambda x: k.Result((x.shape[1], x.shape[0]), x.dtype))
    def transposed(x: Any, y: Any) -> None:
        for column in k.grid(x.shape[1]):
            y.store(column, 0, value=x.load(0, column, width=4, axis=0))

    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(dlc.jit(target=target)(transposed)(x), x.T)


def test_exponentials_flush_subnormals_unless_strict():
    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def powers(x: Any, y: Any) -> None:
        for i in k.grid(x.shape[0]):
            y[i] = k.exp2(x[i]) + k.exp(x[i] * np.log(2).item())

    x = np.array([-130, -126.5, -100, 0, 127], np.float32)
    np.testing.assert_allclose(dlc.jit(numerics="strict")(powers)(x), 2 * np.exp2(x), rtol=2e-5)
    np.testing.assert_allclose(dlc.jit()(powers)(x), [0, 0, *(2 * np.exp2(x[2:]))], rtol=2e-5)


def test_comparisons_are_broadcast_as_their_operands():
    """A boolean vector that is no comparison is converted to a mask: on AVX2 by four instructions."""

    @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
    def lower_triangle(x: Any, y: Any) -> None:
        for i in k.grid(x.shape[0]):
            tile = x.load(i, 0, 0, width=(4, 8))
            row, column = k.iota((4, 1), np.int32, axis=0), k.iota(8, np.int32)
            y.store(i, 0, 0, value=k.select((row >= column) & (row < i.astype(np.int32)), tile, 0))

    x = np.ones((3, 4, 8), np.float32)
    np.testing.assert_array_equal(lower_triangle(x), np.stack([np.tril(x[0]) * (np.arange(4) < i)[:, None] for i in range(3)]))
    loops = dlc.jit()(lower_triangle).lower(x).as_text("loops")
    assert not [line for line in loops.splitlines() if "vector.broadcast" in line and "i1>" in line]


def test_python_and_numpy_operators() -> None:
    def write(x: Any, y: Any) -> None:
        for i in k.grid(x.shape[0]):
            y[i] = abs(x[i]) ** 5 + np.float32(2) * x[i] ** 2 - k.select(np.float32(1) < x[i], x[i], 0)

    x = np.array([-3, -0.5, 0, 1, 2.5], np.float32)
    expected = np.abs(x) ** 5 + 2 * x**2 - np.where(x > 1, x, 0)
    np.testing.assert_allclose(dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))(write)(x), expected, rtol=1e-6)

    def distances(x: Any, y: Any) -> None:
        for i in k.grid(x.shape[0]):
            y[i] = x[abs(i - 4)]

    np.testing.assert_array_equal(dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))(distances)(x), x[::-1])

"""Arithmetic inside kernels against NumPy, on scalars and vectors, on every target."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

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


def elementwise(function: Binary, x: np.ndarray, y: np.ndarray, width: int, target: str, dtype: Any = None) -> np.ndarray:
    """The function of the elements by a kernel, as scalars (width 0) or vectors."""

    @dlc.kernel(results=lambda x, y: k.Result(x.shape, x.dtype if dtype is None else dtype))
    def kernel(x: Any, y: Any, z: Any) -> None:
        for i in k.grid(x.shape[0] // max(width, 1)):
            if width:
                z.store(width * i, value=function(x.load(width * i, width=width), y.load(width * i, width=width)))
            else:
                z[i] = function(x[i], y[i])

    return np.asarray(dlc.jit(target=target)(kernel)(x, y))


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
    def all_of(x: Any, y: Any) -> list[Any]:
        return [function(x, y) for function in functions.values()]

    @dlc.kernel(results=lambda x, y: k.Result((len(functions), *x.shape), x.dtype))
    def kernel(x: Any, y: Any, z: Any) -> None:
        for i in k.grid(x.shape[0] // max(width, 1)):
            results = all_of(*((a.load(width * i, width=width) if width else a[i]) for a in (x, y)))
            for position, value in enumerate(results):
                if width:
                    z.store(position, width * i, value=value)
                else:
                    z[position, i] = value

    filled = dlc.kernel(results=lambda x, y: k.Result((len(functions), *x.shape), x.dtype, fill=0))(kernel.__wrapped__)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = np.stack(all_of(x, y)).astype(x.dtype)
    np.testing.assert_array_equal(np.asarray(dlc.jit(target=target)(filled)(x, y)), expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [0, 8])
@pytest.mark.parametrize(
    "name", ["sqrt", "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tanh", "floor", "ceil", "trunc", "absolute"]
)
def test_functions(name: str, width: int, target: str) -> None:
    x = np.abs(FLOATS) if name in ("sqrt", "log", "log2", "log1p") else FLOATS / 4
    y = elementwise(lambda x, _: getattr(k, name)(x), x, x, width, target)
    np.testing.assert_allclose(y, getattr(np, name)(x.astype(np.float64)), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [0, 8])
def test_functions_of_several_operands(width: int, target: str) -> None:
    x, y = np.abs(FLOATS), OTHER_FLOATS
    for function, expected in (
        (lambda x, y: k.fma(x, y, 0.5), x * y + 0.5),
        (lambda x, y: k.power(x, y), x.astype(np.float64) ** y),
        (lambda x, y: k.maximum(x, y) - k.minimum(x, 1), np.maximum(x, y) - np.minimum(x, 1)),
        (lambda x, y: k.round(x) + k.rsqrt(x) + k.erf(y) * 0, np.rint(x) + 1 / np.sqrt(x)),
    ):
        np.testing.assert_allclose(elementwise(function, x, y, width, target), expected, rtol=2e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [0, 8])
@pytest.mark.parametrize("to", [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.uint32, np.int64, np.bool_])
def test_conversions(to: Any, width: int, target: str) -> None:
    for x in (FLOATS, INTEGERS, UNSIGNED, np.array([True, False] * 4)):
        if np.dtype(to).kind == "u" and x is FLOATS:
            x = np.abs(x)
        y = elementwise(lambda x, _: x.astype(to), x, x, width, target, to)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(y, x.astype(to))


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

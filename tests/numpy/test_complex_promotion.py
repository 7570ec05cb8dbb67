"""Dtypes and values of arithmetic of complex numbers, Python scalars and arrays, against NumPy's."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
import dlc.numpy as dnp

REAL = ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.eq, operator.ne]
UFUNCS = ["add", "subtract", "multiply", "divide", "power", "equal", "maximum", "logical_and", "float_power"]
SCALARS = [1j, 0.5 + 0j, 2.5, 2.0, 2, True]


def pairs(dtype: str) -> list[tuple[Any, Any]]:
    """Return operands of which at least one is complex, on both sides."""
    x = np.array([1, 2, 1]).astype(dtype)
    others: list[Any] = [*SCALARS, *(np.array([1, 3, 1]).astype(d) for d in REAL + COMPLEX)]
    return [pair for y in others if np.iscomplexobj(x) or np.iscomplexobj(y) for pair in ((x, y), (y, x))]


@pytest.mark.parametrize("dtype", REAL + COMPLEX)
def test_results_have_the_dtypes_of_numpy(dtype: str) -> None:
    mismatches: list[str] = []

    def check(name: str, traced: Any, function: Any, expected: Any, x: Any, y: Any) -> None:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            wanted = expected(x, y)
        result = function(*(traced if v is x0 else v for v in (x, y)))
        if result.dtype != wanted.dtype:
            mismatches.append(f"{name}({x!r}, {y!r}): {result.dtype}, NumPy {wanted.dtype}")

    x0: Any = None

    @dlc.jit(target="reference")
    def function(traced: Any) -> Any:
        nonlocal x0
        for x, y in pairs(dtype):
            x0 = x if isinstance(x, np.ndarray) and x.dtype == dtype else y
            for op in OPERATORS:
                check(op.__name__, traced, op, op, x, y)
            for name in UFUNCS:
                check(name, traced, getattr(dnp, name), getattr(np, name), x, y)
        return traced

    function(np.array([1, 2, 1]).astype(dtype))
    assert mismatches == []


@pytest.mark.parametrize("dtype", ["int32", "float16", "float32", "complex64", "complex128"])
def test_results_have_the_values_of_numpy(dtype: str) -> None:
    def results(x: Any) -> list[Any]:
        return [x * 1j, 1j - x, x**2.5 * 1j, (1 + 1j) / x, x**1j, 2**x * 1j, (x * 1j) ** 2, (x + 1j) ** -3]

    x = np.array([1, 2, 3]).astype(dtype)
    for got, wanted in zip(dlc.jit(results, target="reference")(x), results(x), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-3 if dtype == "float16" else 1e-5, atol=1e-6)


def test_complex_scalars_of_scalars_are_weakly_typed() -> None:
    x = np.ones(2, np.float32)
    for function in (lambda x, s: x * (s * 1j), lambda x, s: (1j + s) ** 2 * x, lambda x, s: x / (s - 1j)):
        result = dlc.jit(function, target="reference")(x, 2.0)
        assert result.dtype == function(x, 2.0).dtype == np.complex64
    assert dlc.jit(lambda x, z: x * z, target="reference")(x, 2j).dtype == np.complex64
    assert dnp.result_type(np.float32, 1j) == dnp.result_type(ml_dtypes.bfloat16, np.complex64) == np.complex64
    assert dnp.result_type(np.int64, np.complex64) == dnp.promote_types("float64", "complex64") == np.complex128


def test_complex_numbers_do_not_become_real_silently() -> None:
    for call in (
        lambda: dnp.asarray([1j, 2], np.float32),
        lambda: dnp.full(3, 1j, np.float32),
        lambda: dnp.sum([1j], dtype="int8"),
    ):
        with pytest.raises(dlc.DlcError, match="complex"):
            call()


Z = (np.array([2, 1, 2, 0, -1, 1, 2, 3]) + 1j * np.array([1, 0, -1, 0, 2, 0, 1, np.inf])).astype(np.complex64)
M = (np.arange(6).reshape(2, 3) % 4 - 1j * np.arange(6).reshape(2, 3)[::-1] ** 2).astype(np.complex64)
FUNCTIONS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("sort", (M,), {}), ("sort", (Z,), {}), ("argsort", (Z,), {"stable": True}), ("argsort", (M, 0), {}), ("sort", (M, None), {}),
    ("less", (Z, Z[0]), {}), ("greater_equal", (M, 1), {}), ("maximum", (Z, 1j), {}), ("minimum", (M, M[::-1]), {}),
    ("max", (M,), {"axis": 1}), ("min", (Z,), {"initial": -5j}), ("max", (M[:0],), {"axis": 0, "initial": 1}),
    ("max", (M,), {"keepdims": True, "initial": 1j, "where": M.real > 1}), ("clip", (M, 1, 2 - 1j), {}), ("isin", (Z, [1, 2 + 1j]), {}),
    ("cumprod", (M, 1), {}), ("cumprod", (M,), {}), ("cumprod", (M, 0, np.int64), {}), ("prod", (M, 0, np.int8), {}), ("cumulative_prod", (M,), {"axis": 0, "include_initial": True}),
    ("nansum", (np.where(M.real == 0, np.nan, M),), {"axis": 0}), ("nancumprod", (np.where(M.real == 0, np.nan, M),), {}),
    ("insert", (M, 1, 1j), {"axis": 1}), ("delete", (M, 1, 1), {}), ("meshgrid", (Z[:2], np.float32([1, 2, 3])), {}),
    ("full", (3, 2, np.complex64), {}), ("full_like", (M, 1j), {}), ("sum", (M.real, 0, np.complex64), {}),
    ("eye", (3,), {"dtype": np.complex64}), ("array_equiv", (M, M[0]), {}), ("array_equiv", (Z, Z[:3]), {}), ("iscomplex", (Z,), {}),
    ("add", ([1j, 2], M[:, :2]), {}), ("conj", ([M[0], M[1]],), {}), ("sign", (-0 * Z[:1],), {}), ("real", ([1, 2j],), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "settings"), FUNCTIONS)
def test_functions_of_complex_arrays(name: str, arguments: tuple[Any, ...], settings: dict[str, Any]) -> None:
    function, k = getattr(dnp, name), int(name == "full")
    expected = getattr(np, name)(*arguments, **settings)
    traced = dlc.jit(lambda x: function(*arguments[:k], x, *arguments[k + 1 :], **settings), target="reference")
    results = [function(*arguments, **settings)]
    if isinstance(arguments[k], np.ndarray):
        results.append(traced(arguments[k]))
    for result in results:
        pairs = zip(result, expected, strict=True) if isinstance(expected, tuple | list) else [(result, expected)]
        for got, wanted in pairs:
            assert np.asarray(got).dtype == np.asarray(wanted).dtype and np.shape(got) == np.shape(wanted)
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_unique_elements_of_traced_complex_arrays() -> None:
    z = Z[:7]
    got = dlc.jit(lambda z: dnp.unique(z, True, True, True))(z)
    for result, expected in zip(got, np.unique(z, True, True, True), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_reductions_without_elements_are_errors() -> None:
    for call in (lambda: dnp.max(M[:0], axis=0), lambda: dnp.min(M, where=M.real > 1)):
        with pytest.raises(dlc.ShapeError, match="pass initial"):
            call()

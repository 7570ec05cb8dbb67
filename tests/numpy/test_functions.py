"""Every function of dlc.numpy against NumPy's: traced, for each target, and on plain arrays."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import DlcError
from tests.numpy.cases import CASES, DATA
from tests.targets import NATIVE

ERROR_TYPES = TypeError, ValueError, IndexError


def call(module: Any, family: str, name: str, text: str, data: dict[str, Any]) -> Any:
    """Evaluate `name(text)` with the functions of a module on these arrays."""
    function = f"m.linalg.{name}" if family == "linalg" else f"m.{name}"
    if module is np and name == "sliding_window_view":
        function = f"m.lib.stride_tricks.{name}"
    result = eval(f"{function}({text})", {"m": module}, data)
    if isinstance(result, tuple) and isinstance(result[-1], list | tuple):
        return (*result[:-1], *result[-1])
    return tuple(result) if isinstance(result, list) else result


def by_numpy(family: str, name: str, text: str) -> Any:
    """Return NumPy's result, or the error."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(np, family, name, text, DATA)
    except ERROR_TYPES as error:
        return error


EXPECTED = {
    (family, name, text): by_numpy(family, name, text)
    for family, functions in CASES.items()
    for name, texts in functions.items()
    for text in texts
}


# For these NumPy returns float64 for all floats and scalars; dlc.numpy keeps the dtype of the arrays.
KEEPS_DTYPE = {
    "append", "corrcoef", "cov", "interp", "nanpercentile", "nanquantile", "percentile",
    "polyder", "polyint", "polyval", "quantile", "vander",
}  # fmt: skip


def difference(got: Any, expected: Any) -> str | None:
    """Describe the difference of a result from NumPy's."""
    if isinstance(expected, tuple):
        if len(got) != len(expected):
            return f"{len(got)} results, expected {len(expected)}"
        return next((d for pair in zip(got, expected, strict=True) if (d := difference(*pair))), None)
    got, expected = np.asarray(got), np.asarray(expected)
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"{got.dtype}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
    tolerance = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-11}.get(got.dtype.name, 0)
    close = np.isclose(got, expected, tolerance, tolerance, equal_nan=True) if tolerance else got == expected
    if np.all(close):
        return None
    return f"{got[~close][:4]}, expected {expected[~close][:4]}"


def report(family: str, results: dict[tuple[str, str], Any]) -> str:
    """Return one line for each wrong result."""
    found: dict[str, str | None] = {}
    for (name, text), got in results.items():
        expected = EXPECTED[family, name, text]
        if name in KEEPS_DTYPE and expected.dtype == np.float64:
            expected = expected.astype(np.asarray(got).dtype)
        found[f"{name}({text})"] = difference(got, expected)
    return "\n".join(f"{place}: {wrong}" for place, wrong in found.items() if wrong)


def works(family: str, step: int = 1) -> list[tuple[str, str]]:
    """Return the calls of a family for which NumPy has a result; every `step`-th of each function."""
    kept: list[tuple[str, str]] = []
    for name, texts in CASES[family].items():
        good = [t for t in texts if not isinstance(EXPECTED[family, name, t], Exception)]
        kept += [(name, t) for t in good[::step]]
    return kept


def test_every_function_has_a_case() -> None:
    for family, functions in CASES.items():
        module = getattr(dnp, family)
        defined = {n for n in module.__all__ if inspect.isfunction(getattr(module, n))}
        assert defined - {"top_k"} == set(functions), family
    families = {family.__name__.rpartition(".")[2] for family in dnp.FAMILIES}
    assert families | {"linalg"} == {*CASES, "dtypes", "indexed_updates"}


@pytest.mark.parametrize(("target", "step"), [("reference", 1), ("cpu", 6)])
@pytest.mark.parametrize("family", CASES)
def test_traced(family: str, target: str, step: int) -> None:
    """Compile the calls of a family as one function and list the wrong results; fewer calls for native code, which compiles
    slowly.
    """
    calls = works(family, step)
    compiled = dlc.jit(target=target)(lambda data: [call(dnp, family, *c, data) for c in calls])
    with np.errstate(all="ignore"):
        results = compiled(DATA)
    assert not (text := report(family, dict(zip(calls, results, strict=True)))), f"\n{text}"


@pytest.mark.parametrize("family", CASES)
def test_on_plain_arrays(family: str) -> None:
    assert not (text := report(family, {c: call(dnp, family, *c, DATA) for c in works(family)})), f"\n{text}"


@pytest.mark.parametrize("family", CASES)
def test_invalid_calls_are_errors(family: str) -> None:
    for (f, name, text), expected in EXPECTED.items():
        if f == family and isinstance(expected, Exception):
            with pytest.raises(DlcError) as caught:
                call(dnp, family, name, text, DATA)
            wrong = [kind for kind in ERROR_TYPES if isinstance(expected, kind) and not isinstance(caught.value, kind)]
            assert not wrong, f"{name}({text}): {caught.value!r}, expected {expected!r}"


def test_top_k() -> None:
    x = DATA["c"]
    for axis in (0, 1, -1):
        values, places = dlc.jit(lambda x, axis=axis: dnp.top_k(x, 2, axis=axis))(x)
        np.testing.assert_array_equal(values, -np.sort(-x, axis).take([0, 1], axis))
        np.testing.assert_array_equal(np.take_along_axis(x, places, axis), values)


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("shape", [(300_007,), (3, 140_000), (70_001, 5)])
def test_argmax_of_long_rows(shape: tuple[int, ...], target: str) -> None:
    """Rows with many equal elements and, last, with a NaN."""
    axis = int(np.argmax(shape))
    drawn = np.round(np.random.default_rng(0).standard_normal(shape) * 2)
    arrays = {dtype: drawn.astype(dtype) for dtype in ("float32", "float16", "int8", "uint16", "bool")}

    @dlc.jit(target=target, num_threads=2)
    def find(arrays: dict[str, Any]) -> dict[str, Any]:
        return {dtype: (dnp.argmax(x, axis), dnp.argmin(x, axis)) for dtype, x in arrays.items()}

    def check() -> None:
        for dtype, indices in find(arrays).items():
            for got, expected in zip(indices, (arrays[dtype].argmax(axis), arrays[dtype].argmin(axis)), strict=True):
                np.testing.assert_array_equal(got, expected, err_msg=dtype)

    check()
    for dtype in ("float32", "float16"):
        np.moveaxis(arrays[dtype], axis, 0)[[66_666, 69_999]] = np.nan
    check()


@pytest.mark.parametrize("target", NATIVE)
def test_isin_of_integers(target: str) -> None:
    drawn: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for spread, dtypes in {20: ("int8", "uint64"), 400: ("uint8", "int32"), 1 << 30: ("int32", "uint64")}.items():
        for dtype in dtypes:
            limits, rng = np.iinfo(dtype), np.random.default_rng(spread)
            low, high = max(limits.min, -spread), min(limits.max, spread)
            x, values = (rng.integers(low, high, count, dtype, endpoint=True) for count in (1000, 200))
            x[:2] = limits.min, limits.max
            drawn[f"{dtype} up to {spread}"] = x, values

    @dlc.jit(target=target)
    def is_in(arguments: dict[str, Any]) -> dict[str, Any]:
        return {name: (dnp.isin(x, traced), dnp.isin(x, drawn[name][1])) for name, (x, traced) in arguments.items()}

    for name, results in is_in(drawn).items():
        x, values = drawn[name]
        for got in (*results, dnp.isin(x, values)):
            np.testing.assert_array_equal(np.asarray(got), np.isin(x, values), err_msg=name)


def test_isin_of_integers_under_vmap() -> None:
    x, values = (np.random.default_rng(n).integers(0, 40, (3, n)) for n in (500, 30))
    values[1] *= 100_000
    expected = np.stack([np.isin(*row) for row in zip(x, values, strict=True)])
    np.testing.assert_array_equal(dlc.jit(dlc.vmap(dnp.isin))(x, values), expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floats(dtype: Any) -> None:
    x, y = DATA["f"].astype(dtype), DATA["g"].astype(dtype)

    def function(x: Any, y: Any) -> Any:
        return dnp.tanh(x + y) * 2.5 - dnp.exp(x)

    got = np.asarray(dlc.jit(function)(x, y))
    wide = x.astype(np.float64), y.astype(np.float64)
    assert got.dtype == dtype
    tolerance = {2: 0.05, 8: 1e-12}[got.dtype.itemsize]
    expected = np.tanh(sum(wide)) * 2.5 - np.exp(wide[0])
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance)

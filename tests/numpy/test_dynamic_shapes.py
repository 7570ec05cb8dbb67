"""Functions of arrays with symbolic sizes against NumPy: one program for all but a few sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
import dlc.numpy as dnp
from dlc.errors import ShapeError
from tests.shapes.test_specializations import count_compilations

OF = np.random.default_rng(5)


class DynamicCase(NamedTuple):
    """A function of a namespace and of arrays, which are created for a size; their symbolic axes; its number of guard
    outcomes.
    """

    function: Callable[..., Any]
    arrays: Callable[[int], tuple[NDArray[Any], ...]]
    axes: tuple[dict[int, str], ...] = ({0: "N"},)
    ways: int = 2


def of(*shape: int) -> NDArray[Any]:
    return OF.standard_normal(shape)


def ascending(n: int) -> NDArray[Any]:
    return np.cumsum(OF.uniform(0.1, 1, n))


def two_lengths(n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two vectors, of which the first or the second is longer."""
    return of(n), of(n + 1 if n % 2 else max(n - 3, 1))


N, M, FIXED = {0: "N"}, {0: "M"}, dict[int, str]()
FUNCTIONS = {
    "gradient": DynamicCase(lambda np, x: np.gradient(x), lambda n: (of(n),)),
    "gradient of rows": DynamicCase(lambda np, x: np.gradient(x, 0.5, axis=0), lambda n: (of(n, 5),)),
    "gradient of both axes": DynamicCase(
        lambda np, x: np.gradient(x, 0.5, 2.0), lambda n: (of(n, n + 1),), ({0: "N", 1: "M"},), 3
    ),
    "trapezoid": DynamicCase(lambda np, x: np.trapezoid(x, dx=0.5), lambda n: (of(n),)),
    "trapezoid along rows": DynamicCase(lambda np, y, x: np.trapezoid(y, x, axis=0), lambda n: (of(n, 3), of(n, 3)), (N, N)),
    "trapezoid at places": DynamicCase(lambda np, y, x: np.trapezoid(y, x), lambda n: (of(2, n), ascending(n)), ({1: "N"}, N)),
    "cov of samples": DynamicCase(lambda np, x: np.cov(x), lambda n: (of(3, n),), ({1: "N"},)),
    "cov of variables": DynamicCase(lambda np, x: np.cov(x), lambda n: (of(n, 4),), ways=3),
    "cov of columns": DynamicCase(lambda np, x: np.cov(x, rowvar=False), lambda n: (of(n, 3),)),
    "cov of two": DynamicCase(lambda np, x, y: np.cov(x, y, ddof=0), lambda n: (of(n), of(n)), (N, N)),
    "corrcoef": DynamicCase(lambda np, x: np.corrcoef(x), lambda n: (of(3, n + 2),), ({1: "N"},)),
    "interp": DynamicCase(
        lambda np, x, xp, fp: np.interp(x, xp, fp), lambda n: (of(n), ascending(9), of(9)), (N, FIXED, FIXED)
    ),
    "interp between": DynamicCase(
        lambda np, x, xp, fp: np.interp(x, xp, fp, left=-1), lambda n: (of(n + 2), ascending(n), of(n)), (M, N, N)
    ),
    **{
        f"{name} {mode}": DynamicCase(
            lambda np, x, v, name=name, mode=mode: getattr(np, name)(x, v, mode), lambda n: (of(n), of(3)), (N, FIXED)
        )
        for name in ("convolve", "correlate")
        for mode in ("full", "same", "valid")
    },
    "convolve two open ones": DynamicCase(lambda np, x, v: np.convolve(x, v, "same"), two_lengths, (N, M)),
    "correlate two open ones": DynamicCase(lambda np, x, v: np.correlate(x, v, "full"), two_lengths, (N, M)),
}


@pytest.mark.parametrize(("target", "sizes"), [("reference", (5, 1, 0, 2, 3, 4, 17, 100)), ("cpu", (8, 1, 2, 3, 33, 70))])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_symbolic_sizes(name: str, target: str, sizes: tuple[int, ...]) -> None:
    case, traced = FUNCTIONS[name], list[object]()

    def traces(*arrays: Any) -> Any:
        traced.append(arrays)
        return case.function(dnp, *arrays)

    function = (lambda a: traces(a), lambda a, b: traces(a, b), lambda a, b, c: traces(a, b, c))[len(case.axes) - 1]
    compiled = dlc.jit(target=target, dynamic=dict(zip("abc", case.axes, strict=False)), cache=False)(function)
    errors = 0
    for n in sizes:
        arrays = case.arrays(n)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                expected = case.function(np, *arrays)
            except (ValueError, IndexError):
                expected = None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if expected is None:
                errors += 1
                with pytest.raises(ShapeError):
                    compiled(*arrays)
                continue
            got = compiled(*arrays)
        pairs = zip(got, expected, strict=True) if isinstance(expected, tuple | list) else [(got, expected)]
        for found, wanted in pairs:
            assert np.shape(found) == np.shape(wanted), n
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9, err_msg=str(n))
    # Each outcome of the guards is traced first, and each error, which is then reported for static sizes.
    assert len(traced) <= 2 * case.ways + 3 * errors


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint64])
def test_a_search_in_a_table_of_symbolic_size(dtype: Any, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)

    @dlc.jit(target=target, dynamic={"x": N, "v": M}, cache=False, num_threads=1)
    def f(x: Any, v: Any) -> Any:
        return dnp.searchsorted(x, v), dnp.searchsorted(x, v, side="right")

    for n in (5, 0, 1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 129):
        x = np.sort((of(n) * 10).astype(dtype))
        v = np.concatenate([x[::2], (of(9) * 10).astype(dtype)])
        if v.dtype.kind == "f":
            x[n - n // 4 :], v[-3:] = np.nan, (np.nan, np.inf, -0.0)
        for got, side in zip(f(x, v), ("left", "right"), strict=True):
            np.testing.assert_array_equal(got, np.searchsorted(x, v, side), str(n))
    assert len(compiled) == 1


def test_an_interpolation_of_a_symbolic_number_of_points(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)
    f = dlc.jit(dynamic={"xp": N, "fp": N}, cache=False, num_threads=1)(lambda x, xp, fp: dnp.interp(x, xp, fp))
    for n in (5, 1, 2, 40, 129):
        x, xp, fp = of(30) * n, ascending(n), of(n)
        np.testing.assert_allclose(f(x, xp, fp), np.interp(x, xp, fp), rtol=1e-9)
    assert len(compiled) == 1

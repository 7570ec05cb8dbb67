"""Functions at infinities, the ends of integer ranges and their poles, against NumPy and exact values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import special


def jit(function: Any) -> Any:
    return dlc.jit(function, target="reference")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_interpolation_between_infinite_values() -> None:
    x = np.array([0, 0.5, 1, 1.5, 2, 2.5, 3, 4, -1, np.nan, np.inf])
    for fp in ([1, np.inf, np.inf, 2], [-np.inf, 1, np.nan, np.inf], [np.inf, -np.inf, 0, -np.inf], [3, 1, 4, 1]):
        points = np.array([0.0, 1, 2, 3]), np.array(fp, np.float64)
        np.testing.assert_allclose(jit(dnp.interp)(x, *points), np.interp(x, *points), 1e-15)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "bool", "uint64"])
def test_vander_promotes_integers(dtype: str) -> None:
    x = np.array([3, 7, 2]).astype(dtype)
    for n in (None, 6):
        wanted, got = np.vander(x, n), jit(lambda x: dnp.vander(x, n))(x)  # noqa: B023
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("repeats", [1, 50])
def test_isin_of_signed_and_unsigned_integers(repeats: int) -> None:
    signed = np.array([2**63 - 1, 2**62, -1, 5, -(2**63)] * repeats, np.int64)
    unsigned = np.array([2**63, 2**62 + 1, 5, 2**64 - 1, 0] * repeats, np.uint64)
    for x, values in ((signed, unsigned), (unsigned, signed)):
        wanted = [int(v) in {*map(int, values)} for v in x]
        np.testing.assert_array_equal(jit(dnp.isin)(x, values), wanted)
        np.testing.assert_array_equal(jit(lambda x, v: dnp.isin(x, v, invert=True))(x, values), np.logical_not(wanted))


EXTREME = (2**62 + 3, 2**63 - 1, -(2**63), 2**70, -(2**70))


@pytest.mark.parametrize("number", EXTREME)
def test_slices_and_rolls_by_extreme_integers(number: int) -> None:
    x = np.arange(5.0)
    for k in (slice(number, None), slice(None, number), slice(None, None, number), slice(3, number, number)):
        np.testing.assert_array_equal(jit(lambda x: x[k])(x), x[k])  # noqa: B023
        np.testing.assert_array_equal(jit(lambda x: x.at[k].set(9.0))(x), np.where(np.isin(x, x[k]), 9, x))  # noqa: B023
    wanted = np.roll(x, number % 5)
    np.testing.assert_array_equal(jit(lambda x: dnp.roll(x, number))(x), wanted)
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
            np.testing.assert_array_equal(jit(dnp.roll)(x, dtype(number)), wanted)


def test_rolls_by_narrow_integers() -> None:
    x = np.arange(300.0)
    np.testing.assert_array_equal(jit(dnp.roll)(x, np.int8(-5)), np.roll(x, -5))
    np.testing.assert_array_equal(jit(dnp.roll)(x, np.uint64(2**64 - 1)), np.roll(x, (2**64 - 1) % 300))


def test_index_of_an_extremum_of_nan_only() -> None:
    x = np.array([[np.nan, np.nan], [np.nan, 1], [2, 1]])
    np.testing.assert_array_equal(jit(lambda x: dnp.nanargmin(x, 1))(x), [-1, 1, 1])
    np.testing.assert_array_equal(jit(lambda x: dnp.nanargmax(x, 1, keepdims=True))(x), [[-1], [1], [0]])
    assert jit(dnp.nanargmax)(x[0]) == -1


# The values of SciPy 1.17.1.
NEGATIVE = np.array([-0.5, -1.5, -2.25])
POLYGAMMA = (
    (0.03648997397857652, 0.7031566406452432, 4.158583564657972),
    (8.934802200544679, 9.379246644989124, 19.37941051186914),
    (-0.8287966442343162, -0.23620405164173122, 123.89694977406019),
    (193.4090910340024, 194.59427621918758, 1558.4550231887151),
    (-3.4742498266669255, -0.31375599950703115, 24481.479910902573),
    (15371.113548602432, 15381.6485280263, 492231.13550447027),
)


@pytest.mark.parametrize("n", range(5))
def test_polygamma_and_its_gradient_for_negative_numbers(n: int) -> None:
    np.testing.assert_allclose(special.polygamma(n, NEGATIVE), POLYGAMMA[n], 1e-11)
    np.testing.assert_allclose(dlc.grad(lambda x: special.polygamma(n, x).sum())(NEGATIVE), POLYGAMMA[n + 1], 1e-10)
    np.testing.assert_array_equal(
        special.polygamma(n, np.array([-1.0, -2])), [np.nan if n == 0 else (-1) ** (n + 1) * np.inf] * 2
    )


def test_polygamma_of_traced_orders() -> None:
    """Orders from 2 give NaN for negative numbers, and NaN derivatives."""
    orders = np.array([0.0, 1, 2])
    np.testing.assert_allclose(
        jit(special.polygamma)(orders, NEGATIVE[:1]), [*(row[0] for row in POLYGAMMA[:2]), np.nan], 1e-12
    )
    derivative = jit(lambda n, x: dlc.grad(lambda x: special.polygamma(n, x).sum())(x))(orders[2:], NEGATIVE[:1])
    assert np.isnan(derivative).all()


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("settings", [{}, {"axis": 0}, {"axis": 0, "keepdims": True}])
def test_median_of_nothing(name: str, settings: Any) -> None:
    x = np.zeros((0, 3), np.float32)
    of_numpy, of_dlc = getattr(np, name), getattr(dnp, name)
    for call in (
        lambda: of_numpy(x, **settings),
        lambda: of_dlc(x, **settings),
        lambda: dlc.jit(lambda x: of_dlc(x, **settings))(x),
    ):
        with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
            got = call()
        np.testing.assert_array_equal(got, np.full({0: (), 1: (3,), 2: (1, 3)}[len(settings)], np.nan))

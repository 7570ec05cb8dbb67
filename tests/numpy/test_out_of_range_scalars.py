"""Scalars outside of a dtype's range: an error, or compared by value, never wrapped."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import DTypeError, ShapeError

BYTES = np.array([1, 250], np.uint8)
SIGNED = np.array([2**63 - 1, -1, 0, 5, -(2**63)], np.int64)
UNSIGNED = np.array([2**63 - 1, 2**64 - 1, 0, 5, 2**63], np.uint64)
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 300,
        lambda x: x - (-1),
        lambda x: dnp.full(2, 300, dtype=np.uint8) + x,
        lambda x: dnp.full_like(x, -1),
        lambda x: dnp.array([300, 1], dtype=np.uint8) + x,
        lambda x: x.at[0].set(float("nan")),
        lambda x: x.at[:].add([300, 1]),
        lambda x: dnp.clip(x, 300, 400),
        lambda x: x.astype(np.float16) + 10**400,
    ],
)
def test_literals(function: Callable[[Any], Any]) -> None:
    with pytest.raises(DTypeError, match=r"^[^:]*test_out_of_range_scalars.py:\d+: (?!.*\.py:).*dtype"):
        dlc.jit(function)(BYTES)


@pytest.mark.parametrize("beyond", [2**40, -(2**31) - 1])
def test_arguments(beyond: int) -> None:
    x = np.arange(3, dtype=np.int32)
    scaled = dlc.jit(lambda x, factor: x * factor)
    np.testing.assert_array_equal(scaled(x, 2), x * 2)
    with pytest.raises(DTypeError, match=f"{beyond} does not fit int32, the dtype of an array that it is combined with"):
        scaled(x, beyond)
    with pytest.raises(DTypeError, match="does not fit int32"), dlc.disable_jit():
        scaled(x, beyond)


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons_are_by_value(compare: Callable[[Any, Any], Any]) -> None:
    pairs = (SIGNED, UNSIGNED), (UNSIGNED, SIGNED), (SIGNED[:2].astype(np.int8), UNSIGNED[:2]), (UNSIGNED[:, None], SIGNED)
    for a, b in pairs:
        np.testing.assert_array_equal(dlc.jit(compare)(a, b), compare(a, b))
    for number in (300, -1, 250, 2**70):
        np.testing.assert_array_equal(dlc.jit(lambda x, n=number: compare(x, n))(BYTES), compare(BYTES, number))
    for number in (300, -1, 250):
        np.testing.assert_array_equal(dlc.jit(compare)(BYTES, number), compare(BYTES, number))
    np.testing.assert_array_equal(
        dlc.jit(lambda x: compare(x, 2**70))(np.float32([2**70, 1])), compare(np.float32([2**70, 1]), 2**70)
    )


def test_a_counter_is_compared_beyond_the_dtype() -> None:
    found = dlc.jit(lambda x: dlc.lax.fori_loop(0, 300, lambda i, n: n + (x == i).sum(), 0))(BYTES)
    assert found == 2


@pytest.mark.parametrize("bounds", [(-1, 30), (0, 300), (None, 2**70), (-1, None)])
def test_clip_bound_outside_of_the_dtype(bounds: tuple[int | None, int | None]) -> None:
    np.testing.assert_array_equal(dlc.jit(lambda x: dnp.clip(x, *bounds))(BYTES), np.clip(BYTES, *bounds))


@pytest.mark.parametrize("exponent", [-1, np.array([2, -3])])
def test_integers_to_negative_powers(exponent: Any) -> None:
    with pytest.raises(DTypeError, match="power: an integer to a negative integer power"):
        dlc.jit(lambda x: x**exponent)(np.arange(2))


def test_integer_linspace() -> None:
    np.testing.assert_array_equal(dnp.linspace(-1, 1, 4, dtype=np.int32), np.linspace(-1, 1, 4, dtype=np.int32))
    got = dlc.jit(lambda first: dnp.linspace(first, 1, 4, dtype=np.int32))(np.float32(-1))
    np.testing.assert_array_equal(got, [-1, -1, 0, 1])


def test_variance_of_too_few_elements() -> None:
    x = np.array([[1, np.nan, np.nan], [1, 2, np.nan], [1, 2, 4]])
    for keepdims in (False, True):
        got = dlc.jit(lambda x, k=keepdims: dnp.nanvar(x, 1, ddof=2, keepdims=k))(x)
        np.testing.assert_allclose(got, np.reshape([np.nan, np.nan, 14 / 3], (3, 1) if keepdims else 3))


@pytest.mark.parametrize("part", [1.5, -0.1, [0.5, np.nan]])
def test_quantile_out_of_range(part: Any) -> None:
    with pytest.raises(ShapeError, match="expected 0 ≤ q ≤ 1"):
        dnp.quantile(BYTES, part)


def test_empty_lexsort() -> None:
    with pytest.raises(ShapeError, match=r"lexsort: keys of shape \(0, 2\)"):
        dlc.jit(dnp.lexsort)(np.zeros((0, 2)))
    nowhere: Any = None
    with pytest.raises(DTypeError, match="stack: axis None"):
        dnp.stack([BYTES, BYTES], axis=nowhere)

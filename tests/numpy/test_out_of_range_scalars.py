"""Scalars outside of a dtype's range: an error, or compared by value, never wrapped."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.errors import ArgumentError, DlcError, DTypeError, ShapeError
from tests.targets import NATIVE

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


@pytest.mark.parametrize(
    "function",
    [lambda m, x: m.add(x, 2**40), lambda m, x: x * 2**40, lambda m, x: m.full_like(x, -(2**40)), lambda m, x: x // 2**31],
)
def test_numpys_error(function: Callable[..., Any]) -> None:
    x = np.arange(3, dtype=np.int32)
    for call in (lambda: function(np, x), lambda: function(dnp, x), lambda: dlc.jit(lambda x: function(dnp, x))(x)):
        with pytest.raises(OverflowError, match="out of bounds for int32"):
            call()


def test_integers_beyond_the_mantissa() -> None:
    x, bins = np.int64([2**53 + 1, 2**53 + 2]), np.int64([2**53, 2**53 + 1, 2**53 + 2])
    for edges in (bins, bins[::-1], bins.astype(np.uint64)):
        np.testing.assert_array_equal(dlc.jit(dnp.digitize)(x, edges), np.digitize(x, edges))
    np.testing.assert_array_equal(dnp.searchsorted(np.int32([1, 2]), 2**40), 2)


@pytest.mark.parametrize("beyond", [2**40, -(2**31) - 1])
def test_arguments(beyond: int) -> None:
    x = np.arange(3, dtype=np.int32)
    scaled = dlc.jit(lambda x, factor: x * factor)
    np.testing.assert_array_equal(scaled(x, 2), x * 2)
    with pytest.raises(OverflowError, match=f"{beyond} does not fit int32, the dtype of an array that it is combined with"):
        scaled(x, beyond)
    with pytest.raises(OverflowError, match="does not fit int32"), dlc.disable_jit():
        scaled(x, beyond)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: x * x.shape[0],
        lambda m, x: x - (x.shape[0] - 90),
        lambda m, x: m.where(x > 1, x, x.shape[0]),
        lambda m, x: m.pad(x, 1, constant_values=x.shape[0]),
        lambda m, x: m.minimum(x, x.shape[0]),
        lambda m, x: m.full(2, x.shape[0], dtype=np.int8),
    ],
)
@pytest.mark.parametrize("target", NATIVE)
def test_symbolic_sizes(function: Callable[..., Any], target: str) -> None:
    jitted = dlc.jit(lambda x: function(dnp, x), dynamic={"x": {0: "N"}}, target=target)
    for size in (100, 127):
        x = np.arange(size, dtype=np.int8)
        np.testing.assert_array_equal(jitted(x), function(np, x))
    with pytest.raises(DlcError, match=r"test_out_of_range_scalars.py:\d+.*Python integer \d+ out of bounds for int8"):
        jitted(np.ones(250, np.int8))


def test_a_symbolic_size_in_range_is_not_checked() -> None:
    jitted = dlc.jit(lambda x: x * x.shape[0], dynamic={"x": {0: "N:1..100"}})
    assert "dl.fail" not in str(jitted.lower(np.ones(3, np.int8)).program.module)


@pytest.mark.parametrize("count", [100, 300])
def test_computed_numbers(count: int) -> None:
    """Counters of loops and results of weakly typed arithmetic, in a narrow array."""
    x = np.zeros(3, np.uint8)

    def counted(limit: Any) -> Any:
        return lambda x, n: dlc.lax.fori_loop(0, limit(x, n), lambda i, total: dnp.maximum(total, i), x)

    functions = counted(lambda x, n: count), counted(lambda x, n: n), lambda x, n: x + (n * 2 - n - 1)
    for function in functions:
        if count == 100:
            np.testing.assert_array_equal(dlc.jit(function)(x, count), np.full(3, 99, np.uint8))
        else:
            with pytest.raises(DlcError, match="out of bounds for uint8"):
                dlc.jit(function)(x, count)


def test_a_loop_bound_beyond_the_dtype() -> None:
    jitted = dlc.jit(lambda x, first: dlc.lax.fori_loop(first, x.shape[0], lambda i, n: n + 1, 0), dynamic={"x": {0: "N"}})
    assert jitted(np.zeros(200), np.uint8(7)) == 193
    with pytest.raises(DlcError, match="300 out of bounds for uint8"):
        jitted(np.zeros(300), np.uint8(7))


@pytest.mark.parametrize("mode", ["wrap", "clip"])
@pytest.mark.parametrize("dynamic", [{}, {"x": {0: "N"}}])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint64])
def test_narrow_indices_of_a_long_axis(mode: Any, dynamic: Any, dtype: Any) -> None:
    x, indices = np.arange(300), np.array([0, 100, -7]).astype(dtype)
    got = dlc.jit(lambda x, i: dnp.take(x, i, mode=mode), dynamic=dynamic)(x, indices)
    wide = indices.astype(object) % 300 if mode == "wrap" else np.clip(indices.astype(object), 0, 299)
    np.testing.assert_array_equal(got, wide.astype(int))


def test_labels_of_more_classes_than_their_dtype() -> None:
    logits = np.random.default_rng(0).normal(size=(3, 300)).astype(np.float32)
    labels = np.array([1, 44, 255], np.uint8)
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(3), labels]
    np.testing.assert_allclose(dlc.jit(nn.softmax_cross_entropy)(logits, labels), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "bounds",
    [
        (np.uint8(200), np.uint8(100), 1),
        (np.uint8(200), np.uint8(100), -7),
        (np.int8(-100), np.int8(100), 1),
        (np.int8(100), np.int8(-128), -3),
        (np.int64(-(2**63)), np.int64(2**63 - 1), 2**62),
        (np.int64(2**63 - 1), np.int64(-(2**63)), -(2**63)),
        (np.uint64(2**63), np.uint64(2**63 + 10), 3),
    ],
)
def test_bounds_of_arange(bounds: tuple[Any, Any, Any]) -> None:
    expected = list(range(*map(int, bounds)))
    np.testing.assert_array_equal(dlc.jit(dnp.arange)(*bounds), expected)
    if bounds[0].itemsize == 1:
        np.testing.assert_array_equal(dnp.arange(*bounds), expected)


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


def test_clip_by_a_symbolic_size() -> None:
    jitted = dlc.jit(lambda x: dnp.clip(x, -x.shape[0], x.shape[0]), dynamic={"x": {0: "N"}})
    for size in (100, 300):
        x = np.arange(size).astype(np.uint8)
        np.testing.assert_array_equal(jitted(x), np.clip(x, -size, size))


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
    with pytest.raises(ArgumentError, match="expected 0 ≤ q ≤ 1"):
        dnp.quantile(BYTES, part)


def test_empty_lexsort() -> None:
    with pytest.raises(ShapeError, match=r"lexsort: keys of shape \(0, 2\)"):
        dlc.jit(dnp.lexsort)(np.zeros((0, 2)))
    nowhere: Any = None
    with pytest.raises(DTypeError, match="stack: axis None"):
        dnp.stack([BYTES, BYTES], axis=nowhere)

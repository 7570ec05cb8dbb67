"""Masked updates with one value for each selected element; the data-dependent count is checked at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from tests.targets import TARGETS, level

X = np.arange(12, dtype=np.float32).reshape(3, 4)
# The limits select no, one, some and all elements; the 5 selected ones take the first of VALUES in row-major order.
LIMITS = (11, 10, 6, -1)
VALUES = np.random.default_rng(0).uniform(1, 9, 12).astype(np.float32)
COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda _, new: new, "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def by_numpy(x: np.ndarray, key: Any, values: Any, how: str = "set") -> np.ndarray:
    y = x.copy()
    y[key] = COMBINED[how](y[key], values)
    return y


@pytest.mark.parametrize("target", [*TARGETS, level("cpu:generic"), level("cpu:avx2")])
def test_each_selected_element_has_a_value(target: str) -> None:
    update = dlc.jit(lambda x, mask, values: {how: getattr(x.at[mask], how)(values) for how in COMBINED}, target=target)
    for limit in LIMITS:
        mask = limit < X
        values = VALUES[: mask.sum()]
        for how, got in update(X, mask, values).items():
            np.testing.assert_allclose(np.asarray(got), by_numpy(X, mask, values, how), 1e-6)


@pytest.mark.parametrize("shape", [(2, 4), (1, 2, 1), (2, 1), (1, 4)])
def test_masks_of_the_first_axes_select_rows(shape: tuple[int, ...]) -> None:
    mask, values = np.array([True, False, True]), VALUES[: np.prod(shape)].reshape(shape)
    got = dlc.jit(lambda x, mask, values: x.at[mask].add(values))(X, mask, values)
    np.testing.assert_allclose(got, by_numpy(X, mask, values, "add"), 1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_masks_among_other_keys(target: str) -> None:
    mask, values = np.array([True, False, True, True]), VALUES[:3]

    def keys(mask: Any) -> list[tuple[Any, ...]]:
        return [(slice(None), mask), (..., mask), (1, mask), (slice(0, 2), mask), (None, slice(None), mask)]

    update = dlc.jit(lambda x, mask, values: [x.at[key].set(values) for key in keys(mask)], target=target)
    for got, key in zip(update(X, mask, values), keys(mask), strict=True):
        np.testing.assert_array_equal(np.asarray(got), by_numpy(X, key, values))
    with pytest.raises(dlc.DlcError, match="3 values for 1 selected elements"):
        update(X, ~mask, values)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float64])
def test_dtypes(dtype: Any) -> None:
    x, mask, values = X.astype(dtype), X > 6, VALUES[:5].astype(dtype)
    got = dlc.jit(lambda x, mask, values: x.at[mask].set(values))(x, mask, values)
    np.testing.assert_array_equal(got, by_numpy(x, mask, values))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("count", "selected"), [(0, 5), (4, 5), (6, 5), (2, 0)])
def test_wrong_number_of_values(target: str, count: int, selected: int) -> None:
    update = dlc.jit(lambda x, limit, values: x.at[x > limit].set(values), target=target)
    with pytest.raises(
        dlc.DlcError, match=rf"test_masked_updates\.py:\d+: x\.at\[…\]: {count} values for {selected} selected elements"
    ):
        np.asarray(update(X, np.float32(11 - selected), VALUES[:count]))


def test_eager() -> None:
    update = dlc.jit(lambda x, mask, values: (x.at[mask].set(values), x.at[mask[0]].set(values[:1])))
    with dlc.disable_jit():
        got, one = update(X[0], X[0] > 1, VALUES[:2])
        np.testing.assert_array_equal(got, by_numpy(X[0], X[0] > 1, VALUES[:2]))
        np.testing.assert_array_equal(one, X[0])
        with pytest.raises(dlc.DlcError, match=r"test_masked_updates\.py:\d+: x\.at\[…\]: 3 values for 2 selected elements"):
            update(X[0], X[0] > 1, VALUES[:3])


def test_static_mask() -> None:
    with pytest.raises(dlc.ShapeError, match=r"a value of shape \(3,\) does not broadcast to the selected shape \(2,\)"):
        dlc.jit(lambda x: x.at[np.array([True, False, True])].set(VALUES[:3]))(X[:, 0])


@pytest.mark.parametrize("target", TARGETS)
def test_values_that_another_mask_selects(target: str) -> None:
    """The counts of two masks agree for the data of one call, and differ for another."""
    move = dlc.jit(lambda x, to, of: x.at[to].set(x[of]), target=target)
    for limit in LIMITS:
        to, of = limit < X, 10 - limit >= X
        np.testing.assert_array_equal(np.asarray(move(X, to, of)), by_numpy(X, to, X[of]))
    with pytest.raises(dlc.DlcError, match="7 values for 5 selected elements"):
        np.asarray(move(X, X > 6, X < 7))


@pytest.mark.parametrize("target", TARGETS)
def test_symbolic_sizes(target: str) -> None:
    dynamic: Any = {"x": {0: "N"}, "values": {0: "M"}}
    update = dlc.jit(lambda x, limit, values: x.at[x > limit].multiply(values), target=target, dynamic=dynamic)
    for rows in (0, 1, 3):
        x = X[:rows]
        for limit in LIMITS:
            values = VALUES[: (x > limit).sum()]
            got = np.asarray(update(x, np.float32(limit), values))
            np.testing.assert_allclose(got, by_numpy(x, x > limit, values, "multiply"), 1e-6)
    # A single value broadcasts, as in NumPy.
    np.testing.assert_allclose(np.asarray(update(X, np.float32(6), VALUES[:1])), np.where(X > 6, X * VALUES[0], X), 1e-6)
    with pytest.raises(dlc.DlcError, match="4 values for 5 selected elements"):
        np.asarray(update(X, np.float32(6), VALUES[:4]))


@pytest.mark.parametrize("axes", [(0, 0, 0), (None, 0, None), (0, None, 0), (None, 0, 0)])
def test_vmap(axes: tuple[int | None, ...]) -> None:
    masks = np.array([[True, False, True, False], [False, False, True, True], [True, True, False, False]])
    arrays = X, masks, VALUES[:6].reshape(3, 2)
    given = [a if axis == 0 else a[0] for a, axis in zip(arrays, axes, strict=True)]
    update = dlc.jit(dlc.vmap(lambda x, mask, values: x.at[mask].add(values), in_axes=axes))
    rows = ([a[k] if axis == 0 else a for a, axis in zip(given, axes, strict=True)] for k in range(3))
    np.testing.assert_allclose(update(*given), [by_numpy(*row, "add") for row in rows], 1e-6)
    if axes[1] == 0:
        given[1] = masks.copy()
        given[1][2, 3] = True
        with pytest.raises(dlc.DlcError, match="2 values for 3 selected elements"):
            update(*given)


@pytest.mark.parametrize("target", TARGETS)
def test_derivatives(target: str) -> None:
    """Derivatives with respect to the array and to each value, as for an index array."""
    mask = X > 6
    places = np.nonzero(mask)

    def slopes(named: bool) -> Any:
        def losses(x: Any, mask: Any, values: Any) -> Any:
            total = 0
            for how, combine in COMBINED.items():
                laid = dnp.at(np.ones_like(X))[places].set(values)
                y = dnp.where(mask, combine(x, laid), x) if named else getattr(x.at[mask], how)(values)
                total = total + (y * y * dnp.arange(12).reshape(3, 4)).sum()
            return total

        return dlc.jit(dlc.grad(losses, argnums=(0, 2)), target=target)(X, mask, VALUES[:5])

    for got, expected in zip(slopes(False), slopes(True), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(expected), 1e-5)


@pytest.mark.parametrize("values", [np.float32(np.inf), np.full(1, np.inf, np.float32), np.array([np.inf, 2], np.float32)])
def test_infinite_factor_of_unselected_elements(values: Any) -> None:
    slope = dlc.jit(dlc.grad(lambda x, mask: x.at[mask].multiply(values)[0]))(X[0], np.array([False, True, True, False]))
    np.testing.assert_array_equal(slope[[0, 3]], [1, 0])

"""Data-dependent sizes in traced functions: selections of none, one or all of the elements."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import DlcError
from dlc.runtime.cpu.artifact import Artifact
from tests.runtime.models.test_saved_models import alone

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
# The limits select no, one and all elements above them.
LIMITS = (11, 10, -1, 4)


def selected(x: Any, limit: Any) -> list[Any]:
    mask = x > limit
    kept, rows = x[mask], x[(x > limit).any(axis=1)]
    return [kept, kept * x[x > limit] + kept, rows @ x.T, x.at[mask].set(kept * 2), dnp.concatenate([kept, x[0]])]


def selected_by_numpy(x: np.ndarray, limit: Any) -> list[Any]:
    mask, kept, doubled = x > limit, x[x > limit], x.copy()
    doubled[mask] = kept * 2
    return [kept, kept * kept + kept, x[mask.any(axis=1)] @ x.T, doubled, np.concatenate([kept, x[0]])]


def more(x: Any, limit: Any) -> list[Any]:
    mask = x > limit
    kept = x[mask]
    return [
        kept[::-1], kept[kept > 7], kept[dnp.arange(kept.size) < 2], kept.size, dnp.cumsum(kept) / kept.shape[0],
        x[mask[:, 1], 2], x[1:, mask[0]], *dnp.nonzero(mask), dnp.argwhere(mask), dnp.zeros_like(kept), dnp.full((2, kept.size), 3.5),
    ]  # fmt: skip


def bounded(m: Any, x: Any, limit: Any) -> list[Any]:
    """Compute with module `m` (NumPy or dlc.numpy) slices with traced bounds and slices of data-dependent size."""
    kept, k = x[x > limit], (x > limit).sum()
    return [
        m.diff(kept), (kept[1:] * kept[:-1]).sum(), kept[:3], kept[-2:], kept[::2], kept[5:1:-2], kept[-2::-1], x[1, :k], x[..., -k:],
        x[:, k - 1 : k + 1, None], m.arange(k), m.arange(k, 1, -3), m.arange(1, limit), m.bincount((x[0] - limit + 7).astype(int) % 9),
        m.bincount(m.arange(kept.size) % 5, kept, 2), m.histogram(x, 3)[0], m.repeat(x, m.arange(3) * k, 0),
    ]  # fmt: skip


def more_by_numpy(x: np.ndarray, limit: Any) -> list[Any]:
    mask = x > limit
    kept = x[mask]
    return [
        kept[::-1], kept[kept > 7], kept[:2], kept.size, np.cumsum(kept) / max(kept.size, 1),
        x[mask[:, 1], 2], x[1:, mask[0]], *np.nonzero(mask), np.argwhere(mask), np.zeros_like(kept), np.full((2, kept.size), 3.5),
    ]  # fmt: skip


def check(function: Callable[..., Any], by_numpy: Callable[..., Any]) -> None:
    for limit in LIMITS:
        for got, expected in zip(function(ROWS, np.float32(limit)), by_numpy(ROWS, limit), strict=True):
            assert np.shape(got) == np.shape(expected)
            np.testing.assert_allclose(got, expected, 1e-6)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_none_one_and_all(target: str) -> None:
    check(dlc.jit(target=target)(selected), selected_by_numpy)


def test_computations_on_selections() -> None:
    check(dlc.jit(target="reference")(more), more_by_numpy)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_traced_slice_bounds(target: str) -> None:
    check(dlc.jit(target=target)(lambda x, limit: bounded(dnp, x, limit)), lambda x, limit: bounded(np, x, limit))


def test_eager() -> None:
    with dlc.disable_jit():
        check(dlc.jit(lambda x, limit: bounded(dnp, x, limit)), lambda x, limit: bounded(np, x, limit))
        check(dlc.jit(selected), selected_by_numpy)
        check(dlc.jit(more), more_by_numpy)


def test_symbolic_and_data_dependent_sizes() -> None:
    """A caller's symbol that has the name of a data-dependent size."""
    kept = dlc.jit(dynamic={"x": {0: "count0"}})(lambda x: (x[x > 2], dnp.unique(x)))
    for x in (ROWS[0], ROWS.reshape(-1), ROWS[0, :1], ROWS[0, :0]):
        for got, expected in zip(kept(x), (x[x > 2], np.unique(x)), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_one_native_program(tmp_path: Path) -> None:
    model = dlc.jit(lambda x: {"kept": x[x > 4], "total": x[x > 4].sum()}).lower(ROWS).compile()
    assert isinstance(model.artifact, Artifact)
    model.save(tmp_path / "kept.dlc")
    for x in (ROWS, -ROWS):
        found = alone(tmp_path / "kept.dlc", {"x": x})
        np.testing.assert_array_equal(found["result['kept']"], x[x > 4])
        np.testing.assert_array_equal(found["result['total']"], x[x > 4].sum())


def test_in_loops_and_branches() -> None:
    @dlc.jit
    def function(x: Any) -> Any:
        sums = dlc.lax.map(lambda row: row[row > 2].sum(), x)
        grown = dlc.lax.fori_loop(0, 3, lambda k, c: c * 2, x[x > 8])
        one = dlc.lax.cond(x[0, 0] > 0, lambda: x[x > 3].max(), lambda: x[x < 3].max())
        return sums, grown, one

    for got, expected in zip(function(ROWS), ([3, 22, 38], [72, 80, 88], 2), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_derivatives_of_selections() -> None:
    gradient = dlc.jit(dlc.grad(lambda x, limit: (x[x > limit] ** 3).sum()))
    curvature = dlc.jit(dlc.grad(lambda x, limit: gradient(x, limit).sum()))
    for limit in LIMITS:
        np.testing.assert_allclose(gradient(ROWS, limit), 3 * ROWS**2 * (limit < ROWS), 1e-6)
        np.testing.assert_allclose(curvature(ROWS, limit), 6 * ROWS * (limit < ROWS), 1e-6)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_derivatives_of_masked_updates(target: str) -> None:
    """One value for each selected element: each value has its own derivative, and the replaced elements have none."""

    def written(x: Any, limit: Any) -> Any:
        mask = x > limit
        return (x.at[mask].set(x[mask] ** 2) ** 2).sum()

    gradient = dlc.jit(dlc.grad(written), target=target)
    curvature = dlc.jit(dlc.grad(lambda x, limit: dlc.grad(written)(x, limit).sum()), target=target)
    for limit in map(np.float32, LIMITS):
        np.testing.assert_allclose(gradient(ROWS, limit), np.where(limit < ROWS, 4 * ROWS**3, 2 * ROWS), 1e-6)
        np.testing.assert_allclose(curvature(ROWS, limit), np.where(limit < ROWS, 12 * ROWS**2, 2), 1e-6)


def test_an_extremum_of_no_elements_is_an_error_when_the_function_is_called() -> None:
    function = dlc.jit(lambda x, limit: (x[x > limit].max(), x[: x[x > limit].size, 0].min(initial=7)), target="reference")
    assert [float(y) for y in function(ROWS, 9)] == [11, 0]
    with pytest.raises(DlcError, match="max: no elements along axis None of shape"):
        function(ROWS, 11)
    # Reductions that have no results need no elements.
    assert dlc.jit(lambda x: x[x[:, 0] > 8].max(axis=1), target="reference")(ROWS).shape == (0,)


def test_an_inferred_size_next_to_a_data_dependent_size_of_zero() -> None:
    """An error when the function is called, as in NumPy."""
    flattened = dlc.jit(lambda x: dnp.reshape(rows := x[x[:, 0] > 0], (rows.size, -1)), target="reference")
    divided = dlc.jit(lambda x: dnp.reshape(x, (x[x[:, 0] > 0].shape[0], -1)), target="reference")
    assert flattened(ROWS).shape == (8, 1) and divided(ROWS).shape == (2, 6)
    for function, guard in ((flattened, "4 [*] count0 >= 1"), (divided, "count0 >= 1")):
        with pytest.raises(DlcError, match=rf"requires {guard}; with count0 = 0"):
            function(-ROWS)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians_of_selections(name: str, keepdims: bool) -> None:
    rows = np.where(ROWS == 5, np.nan, ROWS)
    selected = dlc.jit(lambda x, mask: getattr(dnp, name)(x[mask], 0, keepdims=keepdims), target="reference")
    for mask in np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1], [0, 0, 0]], bool):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = getattr(np, name)(rows[mask], 0, keepdims=keepdims)
        np.testing.assert_array_equal(selected(rows, mask), expected)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_derivatives_of_padded_selections(mode: str) -> None:
    def loss(x: Any) -> Any:
        return (dnp.pad(x, 2, mode=mode) ** 2).sum()

    x = np.arange(1.0, 6)
    gradient = dlc.jit(dlc.grad(lambda x, limit: loss(x[x > limit])), target="reference")
    np.testing.assert_allclose(gradient(x, 2), [0, 0, *dlc.grad(loss)(x[2:])])


def test_a_data_dependent_size_bounds_a_slice_of_a_static_axis() -> None:
    for limit in LIMITS:
        count = min(int((limit < ROWS).sum()), 3)
        sliced, updated = dlc.jit(
            lambda x, limit: (x[: x[x > limit].size], x.at[: x[x > limit].size].set(1)), target="reference"
        )(ROWS, limit)
        np.testing.assert_array_equal(sliced, ROWS[:count])
        np.testing.assert_array_equal(updated, np.concatenate([np.ones_like(ROWS[:count]), ROWS[count:]]))


def of_elements(m: Any, x: Any, limit: Any) -> list[Any]:
    """Compute with module `m` functions that need elements of a selection, or one for each of two indices."""
    kept, taps = x[x > limit], m.array([1, 2, 3], dtype="float32")
    return [
        kept[m.array([0, -1])], m.take(kept, m.array([-1, 0])), m.convolve(kept, taps), m.convolve(taps, kept),
        m.interp(x, kept, kept * 2), m.cov(kept, kept * kept), m.isin(x, kept),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_that_need_elements() -> None:
    compiled = dlc.jit(lambda x, limit: of_elements(dnp, x, limit), target="reference")
    for limit in map(np.float32, (10, 9, 4, -1)):
        for got, wanted in zip(compiled(ROWS, limit), of_elements(np, ROWS, limit), strict=True):
            np.testing.assert_allclose(got, wanted, 1e-5)
    functions: list[Callable[..., Any]] = [
        lambda x: x[x > 11][dnp.array([0])],
        lambda x: dnp.convolve(x[x > 11], np.ones(2)),
        lambda x: dnp.interp(x, x[x > 11], x[x > 11]),
    ]
    for function in functions:
        with pytest.raises(DlcError, match=r"index 0 is outside axis 0 of size 0|no elements along axis 0"):
            dlc.jit(function, target="reference")(ROWS)
    assert not np.asarray(dlc.jit(lambda x: dnp.isin(x, x[x > 11]), target="reference")(ROWS)).any()


@pytest.mark.parametrize("is_data_dependent", [True, False])
def test_negative_computed_sizes(is_data_dependent: bool) -> None:
    """As in NumPy: `arange` and `tri` have no rows, the other functions refuse a negative size."""

    def compiled(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return dlc.jit(target="reference", dynamic={"x": {0: "N"}}, cache=False)(
            lambda x: function((x[x > 0] if is_data_dependent else x).shape[0] - 3)
        )

    clamped = compiled(lambda n: (dnp.arange(n), dnp.arange(0, n, 2), dnp.tri(n, 2)))
    for size in (5, 4, 3, 2, 1):
        n = size - 3
        for got, expected in zip(clamped(np.ones(size)), (np.arange(n), np.arange(0, n, 2), np.tri(n, 2)), strict=True):
            np.testing.assert_array_equal(got, expected)
    for function in (dnp.zeros, dnp.eye, lambda n: dnp.eye(3, n), lambda n: dnp.vander(np.arange(3), n), dnp.fft.fftfreq):
        refused = compiled(function)
        assert len(refused(np.ones(5))) in (2, 3)
        with pytest.raises(DlcError, match=r"size -1|N -1; expected at least 0|negative dimensions are not allowed"):
            refused(np.ones(2))

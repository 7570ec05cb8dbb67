"""Arrays that a traced function closes over and that are modified in place: results are those of NumPy."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import DlcError, DTypeError

X = np.arange(4, dtype=np.float32)


def between_uses(x: Any) -> Any:
    w = np.zeros(4, np.float32)
    first = x + w
    w[:] = 5
    second = x + w
    w[0] = np.nan
    return first, second, x * w, x + w


def in_a_python_loop(x: Any) -> Any:
    mask, sums = np.zeros(4, np.float32), []
    for i in range(3):
        mask[i] = 1
        sums.append((x * mask).sum())
    return tuple(sums)


def by_a_view(x: Any) -> Any:
    w = np.zeros((2, 4), np.float32)
    first = x + w[1]
    w[1] = 3
    return first, x + w[1], x + np.zeros(4, np.float32)


def by_its_owner(x: Any) -> Any:
    w = np.zeros(4, np.float32)
    seen = np.broadcast_to(w, (2, 4))
    first = x + seen
    w[:] = 3
    return first, x + seen


def behind_a_loop(x: Any) -> Any:
    w = np.ones(4, np.float32)
    _, sums = dlc.lax.scan(lambda carry, row: (carry, (row * w).sum()), np.float32(0), dnp.stack([x, x]))
    w *= 2
    return sums, x * w


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("function", [between_uses, in_a_python_loop, by_a_view, by_its_owner, behind_a_loop])
def test_reads_see_the_values_at_the_time(function: Callable[[Any], Any], target: str) -> None:
    for found, expected in zip(dlc.jit(target=target)(function)(X), function(X.copy()), strict=True):
        assert np.array_equal(found, expected, equal_nan=True)


class ForeignMemory:
    """Memory of another library: NumPy cannot make a read-only array over it writeable again."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array  # the memory must outlive this object
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize("is_view", [False, True])
def test_a_large_array_over_the_memory_of_another_library_is_copied(is_view: bool) -> None:
    large = np.asarray(ForeignMemory(np.ones(5 << 20, np.float32)))
    captured = large[1:] if is_view else large

    def changes(x: Any) -> Any:
        y = (x + captured)[:2]
        captured[:] = 5
        return y, (x * captured)[:2]

    first, second = dlc.jit(target="reference")(changes)(np.float32(2))
    assert np.array_equal(first, [3, 3])
    assert np.array_equal(second, [10, 10])
    assert captured.flags.writeable


def test_a_large_array_is_not_copied_and_cannot_be_changed_meanwhile() -> None:
    large = np.zeros(1 << 23, np.float32)

    def changes(x: Any) -> Any:
        y = x + large
        large[3] = 1
        return y

    with pytest.raises(DlcError, match=r"test_snapshots\.py:\d+: a large array .* modified in place.*; modify a copy"):
        dlc.jit(target="reference")(changes)(np.float32(2))
    assert large[3] == 0
    large[3] = 1
    lowered = dlc.jit(lambda x: x + large).lower(np.float32(2))
    assert any(held is large for held in lowered.program.weights.values())
    large[3] = 2


def test_the_read_only_arrays_of_the_user_stay_so() -> None:
    large = np.zeros(1 << 23, np.float32)
    large.flags.writeable = False
    dlc.jit(lambda x: x + large[::2]).lower(np.float32(2))
    assert not large.flags.writeable


def test_copying_a_tracer_returns_itself() -> None:
    compiled = dlc.jit(target="reference")(lambda tree: copy.deepcopy(tree)["x"] + copy.copy(tree["x"]))
    assert np.array_equal(compiled({"x": X}), 2 * X)


def test_tracers_cannot_be_pickled() -> None:
    with pytest.raises(DTypeError, match=r"test_snapshots\.py:\d+: a pickle of Tracer"):
        dlc.jit(target="reference")(lambda x: pickle.dumps(x) and x)(X)


def test_a_container_that_holds_itself_is_an_error() -> None:
    circle: list[Any] = [X]
    circle.append(circle)
    with pytest.raises(DTypeError, match="a tuple that contains itself"):
        dlc.jit(target="reference")(lambda x: x[0])(circle)


@pytest.mark.parametrize(
    "function",
    [lambda x: dnp.repeat(x, 1 << 60), lambda x: dnp.broadcast_to(x[:, None, None], (4, 1 << 30, 1 << 30)).sum()],
    ids=["repeat", "broadcast"],
)
def test_out_of_memory_names_the_line(function: Callable[[Any], Any]) -> None:
    with pytest.raises(DlcError, match=r"test_snapshots\.py:\d+: .*does not fit in memory"):
        dlc.jit(function)(X)

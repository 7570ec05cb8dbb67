"""Matching the axes of reshapes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlc.shapes.dims import Dim, Size, UndecidableError
from dlc.shapes.reshapes import paired_reshape_groups, reshape_groups

N, M = Dim.symbol("N"), Dim.symbol("M")


@pytest.mark.parametrize(
    ("source", "result", "groups", "pairs"),
    [
        ((2, 3, 4), (6, 4), [([0, 1], [0]), ([2], [1])], [([0, 1], [0]), ([2], [1])]),
        ((1, 6), (2, 3, 1), [([0], []), ([1], [0, 1]), ([], [2])], [([0, 1], [0, 1, 2])]),
        ((2, 1, 3), (2, 3), [([0], [0]), ([1], []), ([2], [1])], [([0], [0]), ([1, 2], [1])]),
        ((0, 3), (3, 0), [([0, 1], [0, 1])], [([0, 1], [0, 1])]),
        ((1, 1), (), [([0], []), ([1], [])], []),
        ((N, 3, 1), (3 * N,), [([0, 1], [0]), ([2], [])], [([0, 1, 2], [0])]),
        ((N, M, 4), (M * N, 2, 2), [([0, 1], [0]), ([2], [1, 2])], [([0, 1], [0]), ([2], [1, 2])]),
    ],
)
def test_groups(
    source: Sequence[Size],
    result: Sequence[Size],
    groups: list[tuple[list[int], list[int]]],
    pairs: list[tuple[list[int], list[int]]],
) -> None:
    assert [(list(a), list(b)) for a, b in reshape_groups(source, result)] == groups
    assert [(list(a), list(b)) for a, b in paired_reshape_groups(source, result)] == pairs


@pytest.mark.parametrize("result", [(N, 1), (N, 3, 1), (N + 1, 2)])
def test_axes_that_only_guards_show_to_be_equal(result: Sequence[Size]) -> None:
    source = (N, 3, M)
    *_, (axes, result_axes) = reshape_groups(source, result)
    assert (axes.stop, result_axes.stop) == (len(source), len(result))
    with pytest.raises(UndecidableError, match="cannot match the axes of a reshape"):
        paired_reshape_groups(source, result)

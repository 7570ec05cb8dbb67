"""Match the axes of a reshape: which adjacent axes of its operand and of its result hold the same elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dlc.shapes.dims import Size, UndecidableError, product
from dlc.shapes.polynomials import quotient

# Adjacent axes of the operand, and those of the result that hold the same elements.
AxisGroup: TypeAlias = tuple[range, range]


def reshape_groups(source: Sequence[Size], result: Sequence[Size]) -> list[AxisGroup]:
    """Return the finest groups of adjacent axes of two shapes that hold the same elements in row-major order.

    A unit axis without a counterpart is a group with an empty other side. Remaining axes whose symbolic sizes do not determine
    the groups are one group, as are all axes of an empty tensor.
    """
    if 0 in source:
        return [(range(len(source)), range(len(result)))]
    groups: list[AxisGroup] = []
    i = j = 0
    while i < len(source) or j < len(result):
        first, second = i, j
        x, y = source[i] if i < len(source) else None, result[j] if j < len(result) else None
        if x == 1 and y != 1:
            i += 1
        elif y == 1 and x != 1:
            j += 1
        elif x is None or y is None:
            i, j = len(source), len(result)
        else:
            i, j = _end_of_group(source, result, first, second)
        groups.append((range(first, i), range(second, j)))
    return groups


def _end_of_group(source: Sequence[Size], result: Sequence[Size], first: int, second: int) -> tuple[int, int]:
    """Return the ends of the shortest group that starts at these axes; those of both shapes if symbolic sizes leave it open."""
    i, j = first + 1, second + 1
    while (left := product(source[first:i])) != (right := product(result[second:j])):
        takes_source = _divides(left, right)
        if takes_source is None or (i == len(source) if takes_source else j == len(result)):
            return len(source), len(result)
        i, j = (i + 1, j) if takes_source else (i, j + 1)
    return i, j


def _divides(a: Size, b: Size) -> bool | None:
    """Return whether `a` is the smaller product, for symbolic ones if it divides the other; None if neither does."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return True if quotient(b, a) is not None else False if quotient(a, b) is not None else None


def inferred_size(
    shape: Sequence[Size],
    target: Sequence[Size],
    is_less: Callable[[Size, Size], bool],
    are_different: Callable[[Size, Size], bool],
) -> Size | None:
    """Return the size -1 in the target shape of a reshape; None if the elements do not fill the others, or one of these is 0.

    The comparisons may assume their results for symbolic sizes.
    """
    if any(size != -1 and is_less(size, 1) for size in target):
        return None
    # A size that both shapes have at the same axis cancels.
    differs = [k >= min(len(shape), len(target)) or shape[k] != target[k] for k in range(max(len(shape), len(target)))]
    dividend = product(size for k, size in enumerate(shape) if differs[k])
    divisor = product(size for k, size in enumerate(target) if differs[k] and size != -1)
    return None if are_different(dividend % divisor, 0) else dividend // divisor


def paired_reshape_groups(source: Sequence[Size], result: Sequence[Size]) -> list[AxisGroup]:
    """Return the groups with unit axes in neighboring groups; no side is empty, unless a shape has unit axes only.

    Raises UndecidableError if the elements of a group are equal by a guard, but are different polynomials.
    """
    groups: list[AxisGroup] = []
    i = j = 0
    for axes, result_axes in reshape_groups(source, result):
        count, result_count = product(source[axes.start : axes.stop]), product(result[result_axes.start : result_axes.stop])
        if count != result_count:
            raise UndecidableError(f"cannot match the axes of a reshape: {count} and {result_count} elements remain")
        if axes and result_axes:
            groups.append((range(i, axes.stop), range(j, result_axes.stop)))
            i, j = axes.stop, result_axes.stop
    if groups:
        axes, result_axes = groups.pop()
        groups.append((range(axes.start, len(source)), range(result_axes.start, len(result))))
    return groups

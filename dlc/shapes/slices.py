"""Slices `start:stop:step` of an axis: count their bounds from the front and clamp them to the axis.

Sizes and bounds are integers, symbolic sizes, or run-time integers, for which the caller clamps.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from dlc.shapes.dims import UndecidableError

# (bound, size, low, high) -> the bound counted from the front, clamped to [low, high]
Clamp: TypeAlias = "Callable[[Any, Any, Any, Any], Any]"

# The lowest start of a backward slice: a start before the axis selects nothing in NumPy and TFLite, and element 0 in ONNX.
NUMPY_MIN_START_INDEX = -1
ONNX_MIN_START_INDEX = 0


def clamp(bound: Any, size: Any, low: Any, high: Any) -> Any:
    """Return a bound counted from the front and clamped; comparisons of sizes may become guards.

    Raises UndecidableError.
    """
    return min(max(bound + size if bound < 0 else bound, low), high)


def clamp_where_decidable(bound: Any, size: Any, low: Any, high: Any, *, is_negative: bool | None = None) -> Any:
    """Return a bound counted from the front, and clamped if symbolic sizes decide how.

    Otherwise it is not clamped, and the op requires it in bounds. `is_negative`: whether it counts from the end, if known.
    """
    with suppress(UndecidableError):
        bound = bound + size if (bound < 0 if is_negative is None else is_negative) else bound
        return min(max(bound, low), high)
    return bound


def slice_range(
    size: Any, start: Any, stop: Any, step: int, clamp: Clamp = clamp, *, min_backward_start: int = NUMPY_MIN_START_INDEX
) -> tuple[Any, Any]:
    """Return the first position of a slice and the position before which it ends, which may precede the first.

    A bound that is None is that end of the axis. `min_backward_start` is the lowest start for a negative step.
    """
    if step > 0:
        return 0 if start is None else clamp(start, size, 0, size), size if stop is None else clamp(stop, size, 0, size)
    first = size - 1 if start is None else clamp(start, size, min_backward_start, size - 1)
    return first, -1 if stop is None else clamp(stop, size, -1, size - 1)


def forward_slice(
    size: Any, start: Any, stop: Any, step: int, clamp: Clamp = clamp, *, min_backward_start: int = NUMPY_MIN_START_INDEX
) -> tuple[Any, Any]:
    """Return the `slice_range` of a slice as a forward slice, which for a negative step is one of the reversed axis."""
    first, last = slice_range(size, start, stop, step, clamp, min_backward_start=min_backward_start)
    return (first, last) if step > 0 else (size - 1 - first, size - 1 - last)


def unclamped_span(size: Any, start: Any, stop: Any, step: int) -> Any:
    """Return the distance between the bounds of a slice that clamping only makes empty, such as x[1:] and x[:-1]; else None.

    It has the same value for both slices, so that run-time slices have equal symbolic sizes.
    """
    is_from_front = start is None or (isinstance(start, int) and start >= 0)
    is_to_back = stop is None or (isinstance(stop, int) and stop < 0)
    return size + (stop or 0) - (start or 0) if step > 0 and is_from_front and is_to_back else None


def max_count(size: Any, step: int) -> Any:
    """Return the maximum number of elements that a slice with this step selects."""
    return -(-size // abs(step))

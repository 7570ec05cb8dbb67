"""Padding: constants, elements of the array, ramps and statistics."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import is_complex
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import ArrayLike, Operand, apply, as_shape, call_numpy, convert, is_less, operand, refuse
from dlc.numpy.componentwise import componentwise
from dlc.numpy.functions import reductions
from dlc.numpy.functions.elementwise import add, floor, multiply, rint, subtract
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.quantiles import median
from dlc.numpy.functions.shape_manipulation import broadcast_to, flip, slice_axis
from dlc.shapes.dims import UndecidableError, is_static
from dlc.shapes.traced_dims import TracedDim, TracedSize, untraced

__all__ = ["pad"]

# Modes that repeat elements, modes that compute one value for each side, and those of them that compare elements.
_INDEX_MODES = "edge", "reflect", "symmetric", "wrap"
_STATISTICS: dict[str, Any] = {
    "maximum": reductions.max, "mean": reductions.mean, "median": median, "minimum": reductions.min,
}  # fmt: skip
_ORDER_MODES = "maximum", "median", "minimum"
PAD_MODES = tuple(sorted(("constant", "empty", "linear_ramp", *_INDEX_MODES, *_STATISTICS)))


def pad(
    x: ArrayLike,
    /,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: ArrayLike = 0,
    end_values: Any = 0,
    stat_length: Any = None,
) -> Any:
    """Pad `x` by `(before, after)` elements for each axis, or for all axes.

    | mode | elements |
    |---|---|
    | constant | `constant_values`; empty: zeros |
    | edge, reflect, symmetric, wrap | those of `x`, as in NumPy |
    | linear_ramp | from `end_values` to the first or last element |
    | maximum, mean, median, minimum | of the first or last `stat_length` elements, or of all |

    `end_values` and `stat_length` are `(before, after)` for each axis, or for all axes.

    Raises UnsupportedError for the maximum, median and minimum of complex elements, which have no order.
    """
    if mode not in PAD_MODES:
        refuse(UnsupportedError(f"pad: mode {mode!r}; expected one of {', '.join(PAD_MODES)}"))
    if mode in _ORDER_MODES and is_complex(x):
        refuse(UnsupportedError(f"pad: mode {mode!r} of a complex array; apply it to .real and .imag"))
    ends: Any = np.asarray(cast("ArrayLike", end_values)) if isinstance(end_values, list | tuple) else end_values
    return _pad(x, pad_width, mode, constant_values, ends, stat_length)


@componentwise("x", "constant_values", "end_values")
def _pad(x: ArrayLike, pad_width: Any, mode: str, constant_values: ArrayLike, end_values: Any, stat_length: Any) -> Any:
    x = operand(x)
    low, high = _pad_widths(pad_width, x)
    as_shape("pad", [n + before + after for n, before, after in zip(x.shape, low, high, strict=True)])
    if mode in ("constant", "empty"):
        value = convert(constant_values, x.dtype)
        if value.ndim:
            refuse(
                UnsupportedError(
                    f"pad: constant_values of shape {value.shape}; expected a scalar: pad one side at a time, or use concat"
                )
            )
        return _pad_with_scalar(value, x, low, high)
    if not all(map(is_static, (low, high))):
        refuse(UndecidableError(f"pad: mode {mode!r} with pad_width {pad_width!r}; expected integers for this mode"))
    if mode not in _INDEX_MODES:
        widths = [(operator.index(before), operator.index(after)) for before, after in zip(low, high, strict=True)]
        return _pad_by_values(x, mode, widths, _each_side(x, end_values), _each_side(x, stat_length))
    if not is_static(x.shape):
        if mode == "symmetric":
            return _pad_symmetric(x, cast("list[int]", low), cast("list[int]", high))
        return apply(dl.PadOp, x, convert(0, x.dtype), low=low, high=high, pad_mode=mode)
    indices: dict[int, np.ndarray] = {}
    for axis, width in enumerate(zip(low, high, strict=True)):
        if any(width):
            if x.shape[axis] == 0:
                refuse(ShapeError(f"pad: mode {mode!r} needs at least one element along axis {axis} of shape {x.shape}"))
            indices[axis] = call_numpy("pad", np.pad, np.arange(x.shape[axis]), width, mode)
    return _take_runs(x, indices)


def _pad_widths(pad_width: Any, x: Operand) -> tuple[list[TracedSize], list[TracedSize]]:
    """Return the elements to add before and after each axis: of one width, or of (before, after) for one axis or all axes."""
    widths: Any = pad_width.tolist() if isinstance(pad_width, np.ndarray) else pad_width
    rows: list[Any] = [*widths] if isinstance(widths, list | tuple) else [widths]
    pairs: list[Any] = rows if all(isinstance(row, list | tuple) for row in rows) else [rows]
    if len(pairs) not in (1, x.ndim) or any(len(pair) not in (1, 2) for pair in pairs):
        refuse(ShapeError(f"pad: pad_width {pad_width} for shape {x.shape}; expected (before, after) for each axis"))
    widths = [w for pair in pairs for w in pair]
    if not all(isinstance(w, int | np.integer | TracedDim) for w in widths):
        refuse(DTypeError(f"pad: pad_width {pad_width!r}; expected integers, (before, after) for each axis"))
    if any(w < 0 for w in widths):
        refuse(ArgumentError(f"pad: pad_width {pad_width!r}; expected integers ≥ 0"))
    pairs = pairs if len(pairs) == x.ndim else pairs * x.ndim
    low, high = ([w if isinstance(w, TracedDim) else int(w) for w in (pair[end] for pair in pairs)] for end in (0, -1))
    return low, high


def _each_side(x: Operand, value: Any) -> list[tuple[Any, Any]]:
    """Return `value` for both sides of each axis."""
    if value is None or np.ndim(value) == 0:
        return [(value, value)] * x.ndim
    sides = value if isinstance(value, Tracer) else np.asarray(value)
    if sides.shape not in ((1,), (2,), (1, 1), (1, 2), (x.ndim, 1), (x.ndim, 2)):
        refuse(ShapeError(f"pad: {value!r} for shape {x.shape}; expected (before, after) for each axis"))
    rows: Any = broadcast_to(sides, (x.ndim, 2)) if isinstance(sides, Tracer) else np.broadcast_to(sides, (x.ndim, 2))
    return [(rows[axis, 0], rows[axis, 1]) for axis in range(x.ndim)]


def _pad_by_values(
    x: Operand,
    mode: str,
    widths: Sequence[tuple[int, int]],
    end_values: Sequence[tuple[Any, Any]],
    lengths: Sequence[tuple[Any, Any]],
) -> Any:
    """Pad one axis after the other, each side with a statistic of the elements next to it, or with a ramp."""
    for axis, (width, ends, length) in enumerate(zip(widths, end_values, lengths, strict=True)):
        sides: list[Any] = []
        for is_after in (False, True):
            if mode == "linear_ramp":
                sides.append(_ramp(x, axis, width[is_after], ends[is_after], is_after))
            else:
                sides.append(_statistic(x, axis, width[is_after], mode, length[is_after], is_after))
        x = operand(concat([sides[0], x, sides[1]], axis=axis))
    return x


def _statistic(x: Operand, axis: int, width: int, mode: str, length: Any, is_after: bool) -> Any:
    size = x.shape[axis]
    length = size if length is None else min(operator.index(length), size)
    if length < 1:
        refuse(
            ArgumentError(f"pad: mode {mode!r} of {length} elements along axis {axis} of shape {x.shape}; expected at least 1")
        )
    part = slice_axis(x, axis, size - length, size) if is_after else slice_axis(x, axis, 0, length)
    value = operand(_STATISTICS[mode](part, axis=axis, keepdims=True))
    value = convert(rint(value) if x.dtype.kind in "iu" and value.dtype.kind == "f" else value, x.dtype)
    return broadcast_to(value, [width if a == axis else n for a, n in enumerate(x.shape)])


def _ramp(x: Operand, axis: int, width: int, end: Any, is_after: bool) -> Any:
    """Return the elements from `end` toward the first or last one of an axis, which is not included."""
    size = x.shape[axis]
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    edge = convert(slice_axis(x, axis, size - 1, size) if is_after else slice_axis(x, axis, 0, 1), dtype)
    steps = np.arange(width, dtype=dtype).reshape([-1 if a == axis else 1 for a in range(x.ndim)]) / max(width, 1)
    steps = np.flip(steps, axis) if is_after else steps
    end = convert(end, dtype)
    ramp = add(end, multiply(subtract(edge, end), steps.astype(dtype)))
    return convert(floor(ramp) if x.dtype.kind in "iu" else ramp, x.dtype)


def _pad_with_scalar(value: Operand, x: Operand, low: Sequence[TracedSize], high: Sequence[TracedSize]) -> Any:
    """Pad an array with a scalar: by concatenation where the widths are symbolic."""
    dynamic_axes = [k for k, sides in enumerate(zip(low, high, strict=True)) if not is_static(sides)]
    static_low, static_high = ([0 if k in dynamic_axes else w for k, w in enumerate(side)] for side in (low, high))
    if any((*static_low, *static_high)) or not dynamic_axes:
        x = operand(apply(dl.PadOp, x, value, low=static_low, high=static_high, pad_mode="constant"))
    for axis in dynamic_axes:
        shapes: list[Any] = [[w[axis] if k == axis else n for k, n in enumerate(x.shape)] for w in (low, high)]
        before, after = (broadcast_to(value, shape) for shape in shapes)
        x = operand(concat([before, x, after], axis))
    return x


def _pad_symmetric(x: Operand, low: Sequence[int], high: Sequence[int]) -> Any:
    """Pad an array of symbolic shape by reversed slices, which may not be longer than the array."""
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        size = x.shape[axis]
        if is_less(x, untraced(size), max(before, after), "pad", f"fewer elements along axis {axis} than are padded"):
            refuse(UndecidableError(f"pad: more than {size} elements of axis {axis} in mode 'symmetric'; make its size static"))
        sides = [flip(slice_axis(x, axis, *bounds), axis) for bounds in ((0, before), (size - after, size))]
        x = operand(concat([sides[0], x, sides[1]], axis))
    return x


# The maximum operands of a padded array's concatenations; with more of them, axes are padded one after the other.
_MAX_PAD_OPERANDS = 32


def _take_runs(x: Operand, indices: Mapping[int, np.ndarray]) -> Any:
    """Return `x` taken at these indices along each axis; they form runs of step 1, -1 or 0, which are slices to join.

    Every piece is a part of `x` itself, so that one kernel copies all of them to the result.
    """
    pieces: list[tuple[int, list[_Run]]] = []
    for axis, positions in indices.items():
        runs = _runs(positions)
        if prod(len(r) for _, r in pieces) * len(runs) > _MAX_PAD_OPERANDS:
            x, pieces = operand(_join_runs(x, pieces)), []
        pieces.append((axis, runs))
    return _join_runs(x, pieces)


def _join_runs(x: Operand, pieces: Sequence[tuple[int, Sequence[_Run]]]) -> Any:
    """Return the concatenation along the first axis of its runs, each of which is joined along the other axes."""
    if not pieces:
        return x
    (axis, runs), *other_pieces = pieces
    return concat([_join_runs(operand(run.take(x, axis)), other_pieces) for run in runs], axis=axis)


@dataclass(frozen=True)
class _Run:
    """The indices first, first + step, … of an axis: `count` of them, with a step of 1, -1 or 0."""

    first: int
    step: int
    count: int

    def take(self, x: Operand, axis: int) -> Any:
        last = self.first + self.step * (self.count - 1)
        low, high = sorted((self.first, last))
        part = slice_axis(x, axis, low, high + 1)
        if self.step == 0:
            part = broadcast_to(part, [self.count if a == axis else s for a, s in enumerate(x.shape)])
        return flip(part, axis) if self.step < 0 else part


def _runs(indices: np.ndarray) -> list[_Run]:
    """Return indices as runs, each as long as possible."""
    steps = np.diff(indices)
    runs: list[_Run] = []
    start = 0
    while start < len(indices):
        step = int(steps[start]) if start < len(steps) and abs(steps[start]) < 2 else 0
        has_equal_step = steps[start:] == step
        stop = start + 1 + (len(has_equal_step) if has_equal_step.all() else int(np.argmin(has_equal_step)))
        runs.append(_Run(int(indices[start]), step, stop - start))
        start = stop
    return runs

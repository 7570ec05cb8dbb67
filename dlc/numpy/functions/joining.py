"""Joining and splitting: concatenate, stack, split and pad arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Operand,
    apply,
    are_different,
    as_dtype,
    as_list,
    as_shape,
    call_numpy,
    convert,
    is_less,
    normalize_axis,
    operand,
    promote,
    refuse,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.functions.indexing import getitem
from dlc.numpy.functions.shape_manipulation import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_to,
    expand_dims,
    flip,
    ravel,
    reshape,
    slice_axis,
    squeeze,
)
from dlc.shapes.dims import UndecidableError, is_static
from dlc.shapes.traced_dims import TracedDim, TracedSize, untraced

__all__ = [
    "append", "array_split", "column_stack", "concat", "dsplit", "dstack", "hsplit", "hstack", "pad", "split", "stack",
    "unstack", "vsplit", "vstack",
]  # fmt: skip

# Each section becomes an array; more sections are taken for a mistake.
_MAX_SECTIONS = 1 << 20
Arrays = Sequence[ArrayLike] | Tracer
# The sets of conversions that numpy.can_cast knows.
_CASTINGS = "no", "equiv", "safe", "same_kind", "unsafe"


@componentwise("arrays")
def concat(arrays: Arrays, /, axis: int | None = 0, *, dtype: AnyDType = None, casting: str = "same_kind") -> Any:
    """Concatenate arrays along `axis`; axis None: of the flattened arrays.

    The result has the `dtype`, to which `casting` must allow to convert the arrays: as in `numpy.can_cast`.
    """
    array_list = as_list("concat", arrays)
    if not array_list:
        refuse(ShapeError("concat: no arrays; expected at least one"))
    operands = promote(*array_list) if dtype is None else [_cast(x, as_dtype(dtype), casting) for x in array_list]
    if axis is None:
        operands, axis = [ravel(x) for x in operands], 0
    if operands[0].ndim == 0:
        refuse(ShapeError("concat: arrays of rank 0 have no axis to join along; use stack"))
    axis = normalize_axis("concat", operands[0], axis)
    return apply(dl.ConcatOp, *operands, axis=axis) if len(operands) > 1 else operands[0]


def _cast(x: ArrayLike, dtype: np.dtype[Any], casting: str) -> Operand:
    """Convert an array. Raises DTypeError if `casting` does not allow that."""
    own_dtype = operand(x).dtype
    if casting not in _CASTINGS:
        refuse(ArgumentError(f"concat: casting {casting!r}; expected one of {', '.join(_CASTINGS)}"))
    if not np.can_cast(own_dtype, dtype, cast(Any, casting)):
        refuse(DTypeError(f"concat: {own_dtype} to {dtype} with casting {casting!r}; convert the array with .astype"))
    return convert(x, dtype)


@componentwise("arrays")
def stack(arrays: Arrays, /, axis: int = 0, *, dtype: AnyDType = None, casting: str = "same_kind") -> Any:
    """Join arrays along a new axis."""
    operands = [operand(x) for x in as_list("stack", arrays)]
    shapes = {untraced(x.shape) for x in operands}
    if len(shapes) != 1:
        refuse(ShapeError(f"stack: arrays of shapes {', '.join(map(str, sorted(shapes)))}; expected equal shapes"))
    new_axis = normalize_axis("stack", np.empty((1,) * (operands[0].ndim + 1)), axis)
    return concat([expand_dims(x, new_axis) for x in operands], axis=new_axis, dtype=dtype, casting=casting)


@componentwise("arrays")
def hstack(arrays: Arrays, /, *, dtype: AnyDType = None, casting: str = "same_kind") -> Any:
    """Concatenate arrays along the second axis; vectors along their only axis."""
    operands = [atleast_1d(x) for x in as_list("hstack", arrays)]
    return concat(operands, axis=0 if operands and operands[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@componentwise("arrays")
def vstack(arrays: Arrays, /, *, dtype: AnyDType = None, casting: str = "same_kind") -> Any:
    """Concatenate arrays along the first axis; vectors are rows."""
    return concat([atleast_2d(x) for x in as_list("vstack", arrays)], axis=0, dtype=dtype, casting=casting)


@componentwise("arrays")
def dstack(arrays: Arrays, /) -> Any:
    """Concatenate arrays along the third axis."""
    return concat([atleast_3d(x) for x in as_list("dstack", arrays)], axis=2)


@componentwise("arrays")
def column_stack(arrays: Arrays, /) -> Any:
    """Concatenate arrays along the second axis; vectors are columns."""
    operands = [operand(x) for x in as_list("column_stack", arrays)]
    return concat([x if x.ndim > 1 else reshape(x, (x.size, 1)) for x in operands], axis=1)


@componentwise("x", "values")
def append(x: ArrayLike, values: ArrayLike, /, axis: int | None = None) -> Any:
    """Concatenate `values` after `x` along `axis`; axis None: both flattened."""
    return concat([x, values], axis=axis)


@componentwise("x")
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices of `x` along `axis`, with that axis removed."""
    x = operand(x)
    axis = normalize_axis("unstack", x, axis)
    return tuple(squeeze(p, axis) for p in split(x, x.shape[axis], axis)) if x.shape[axis] else ()


@componentwise("x")
def split(x: ArrayLike, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> list[Any]:
    """Split `x` along `axis` into equal sections, or before the given indices."""
    x = operand(x)
    axis = normalize_axis("split", x, axis)
    size = x.shape[axis]
    if not _is_sequence(indices_or_sections):
        count = _section_count("split", cast(int, indices_or_sections))
        if are_different(x, untraced(size) % count, 0, "split"):
            refuse(ShapeError(f"split: size {size} does not divide into {count} equal sections; use array_split"))
        section = size // count
        return [slice_axis(x, axis, k * section, (k + 1) * section) for k in range(count)]
    return array_split(x, indices_or_sections, axis)


def _is_sequence(indices_or_sections: object) -> bool:
    """Return whether an array is split before indices, and not into a number of sections."""
    return isinstance(indices_or_sections, Sequence) or (
        isinstance(indices_or_sections, Tracer | np.ndarray) and indices_or_sections.ndim > 0
    )


def _section_count(name: str, sections: int) -> int:
    """Return a number of sections. Raises ShapeError for a number out of range, and UndecidableError for a symbolic size."""
    if isinstance(sections, TracedDim):
        problem = f"{name}: {sections} sections; the number of results must be known while the function is traced"
        refuse(UndecidableError(f"{problem}: pass an integer, or reshape the array and loop over an axis"))
    count = int(sections)
    if not 1 <= count <= _MAX_SECTIONS:
        refuse(ShapeError(f"{name}: {count} sections; expected from 1 to {_MAX_SECTIONS}"))
    return count


@componentwise("x")
def array_split(x: ArrayLike, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> list[Any]:
    """Split `x` along `axis` into sections, the first ones larger by one if necessary, or before the given indices."""
    x = operand(x)
    axis = normalize_axis("array_split", x, axis)
    size = x.shape[axis]
    if _is_sequence(indices_or_sections):
        whole = (slice(None),) * axis
        cuts = [None, *cast("Sequence[int]", indices_or_sections), None]
        return [getitem(x, (*whole, slice(start, stop))) for start, stop in pairwise(cuts)]
    count = _section_count("array_split", cast(int, indices_or_sections))
    # ⌈(size - k) / count⌉ elements in section k, which needs no comparison of symbolic sizes.
    bounds = pairwise(accumulate(((size + count - 1 - k) // count for k in range(count)), initial=0))
    return [slice_axis(x, axis, start, stop) for start, stop in bounds]


@componentwise("x")
def hsplit(x: ArrayLike, indices_or_sections: int | Sequence[int], /) -> list[Any]:
    """Split along the second axis; a vector along its only axis."""
    return split(x, indices_or_sections, 0 if operand(x).ndim == 1 else 1)


@componentwise("x")
def vsplit(x: ArrayLike, indices_or_sections: int | Sequence[int], /) -> list[Any]:
    """Split along the first axis."""
    return split(x, indices_or_sections, 0)


@componentwise("x")
def dsplit(x: ArrayLike, indices_or_sections: int | Sequence[int], /) -> list[Any]:
    """Split along the third axis."""
    return split(x, indices_or_sections, 2)


PAD_MODES = "constant", "edge", "reflect", "symmetric", "wrap"


@componentwise("x", "constant_values")
def pad(x: ArrayLike, /, pad_width: Any, mode: str = "constant", *, constant_values: ArrayLike = 0) -> Any:
    """Pad `x` by `(before, after)` elements for each axis, or for all axes; modes: constant, edge, reflect, symmetric, wrap."""
    x = operand(x)
    if mode not in PAD_MODES:
        refuse(UnsupportedError(f"pad: mode {mode!r}; expected one of {', '.join(PAD_MODES)}"))
    low, high = _pad_widths(pad_width, x)
    as_shape("pad", [n + before + after for n, before, after in zip(x.shape, low, high, strict=True)])
    if mode == "constant":
        value = convert(constant_values, x.dtype)
        if value.ndim:
            refuse(
                UnsupportedError(
                    f"pad: constant_values of shape {value.shape}; expected a scalar: pad one side at a time, or use concat"
                )
            )
        return _pad_with(value, x, low, high)
    if not all(map(is_static, (low, high))):
        refuse(UndecidableError(f"pad: mode {mode!r} with widths {pad_width!r}, which must be static"))
    if not is_static(x.shape):
        if mode == "symmetric":
            return _pad_symmetric(x, low, high)
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


def _pad_with(value: Operand, x: Operand, low: Sequence[TracedSize], high: Sequence[TracedSize]) -> Any:
    """Pad an array with a number; symbolic widths are those of arrays that are joined."""
    dynamic_axes = [k for k, sides in enumerate(zip(low, high, strict=True)) if not is_static(sides)]
    static_low, static_high = ([0 if k in dynamic_axes else w for k, w in enumerate(side)] for side in (low, high))
    if any((*static_low, *static_high)) or not dynamic_axes:
        x = operand(apply(dl.PadOp, x, value, low=static_low, high=static_high, pad_mode="constant"))
    for axis in dynamic_axes:
        shapes: list[Any] = [[w[axis] if k == axis else n for k, n in enumerate(x.shape)] for w in (low, high)]
        before, after = (broadcast_to(value, shape) for shape in shapes)
        x = operand(concat([before, x, after], axis))
    return x


def _pad_symmetric(x: Operand, low: Sequence[TracedSize], high: Sequence[TracedSize]) -> Any:
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

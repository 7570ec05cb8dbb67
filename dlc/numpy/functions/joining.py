"""Joining and splitting: concatenate, stack, insert, delete and split arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Operand,
    apply,
    are_different,
    as_dtype,
    as_list,
    convert,
    normalize_axis,
    operand,
    promote,
    refuse,
    with_axis_or_flattened,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.functions.indexing import getitem
from dlc.numpy.functions.shape_manipulation import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_to,
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    slice_axis,
    squeeze,
)
from dlc.shapes.dims import UndecidableError
from dlc.shapes.traced_dims import TracedDim, untraced

__all__ = [
    "append", "array_split", "block", "column_stack", "concat", "delete", "dsplit", "dstack", "hsplit", "hstack", "insert",
    "split", "stack", "unstack", "vsplit", "vstack",
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


def block(arrays: Any, /) -> Any:
    """Join nested lists of arrays: the innermost lists along the last axis, each outer one along the axis before.

    All lists are nested equally deep. An array with fewer axes gets leading ones.
    """
    depth = _list_depth(arrays)
    axes = max(depth, max(operand(a).ndim for a in _leaves(arrays)))
    return _block(arrays, axes, -depth)


def _list_depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    depths = {_list_depth(a) for a in cast("list[Any]", arrays)}
    if len(depths) != 1:
        refuse(ShapeError("block: an empty list, or lists nested to different depths"))
    return 1 + depths.pop()


def _leaves(arrays: Any) -> list[Any]:
    if not isinstance(arrays, list):
        return [arrays]
    return [leaf for a in cast("list[Any]", arrays) for leaf in _leaves(a)]


def _block(arrays: Any, axes: int, axis: int) -> Any:
    if isinstance(arrays, list):
        return concat([_block(a, axes, axis + 1) for a in cast("list[Any]", arrays)], axis=axis)
    x = operand(arrays)
    return reshape(x, (1,) * (axes - x.ndim) + x.shape)


def _static_positions(name: str, obj: Any, size: int) -> np.ndarray:
    """Return the positions that an integer, a slice or a list of them, or a mask selects, from 0 on."""
    if isinstance(obj, Tracer):
        refuse(
            UnsupportedError(f"{name}: obj is a traced array, so that the result's shape is unknown; use compress, or where")
        )
    chosen = np.arange(*obj.indices(size)) if isinstance(obj, slice) else _as_positions(name, obj)
    if chosen.dtype.kind == "b":
        chosen = np.flatnonzero(chosen)
    chosen = chosen.astype(np.int64) if chosen.size == 0 else chosen
    if chosen.dtype.kind not in "iu" or chosen.ndim > 1:
        return refuse(_wrong_positions(name, obj))
    return np.where(chosen < 0, chosen + size, chosen)


def _as_positions(name: str, obj: Any) -> np.ndarray:
    try:
        return np.asarray(obj)
    except ValueError:  # lists of different lengths
        return refuse(_wrong_positions(name, obj))


def _wrong_positions(name: str, obj: Any) -> DTypeError:
    return DTypeError(f"{name}: obj {obj!r}; expected an integer, a slice, a vector of integers or a mask")


@componentwise("x")
def delete(x: ArrayLike, obj: Any, /, axis: int | None = None) -> Any:
    """Remove the slices at these positions along `axis`; axis None: of the flattened array."""
    x, axis = with_axis_or_flattened("delete", x, axis)
    size = x.shape[axis]
    mask = _as_positions("delete", obj) if isinstance(obj, np.ndarray | list) else None
    if mask is not None and mask.dtype.kind == "b" and mask.shape != (size,):
        refuse(ShapeError(f"delete: obj is a mask of shape {mask.shape}; expected ({size},) for axis {axis}"))
    positions = np.unique(_static_positions("delete", obj, size))
    if positions.size and (positions[0] < 0 or positions[-1] >= size):
        refuse(OutOfBoundsError(f"delete: position {obj!r} is out of bounds for size {size} of axis {axis}"))
    bounds = pairwise([-1, *positions.tolist(), size])
    return concat([slice_axis(x, axis, before + 1, after) for before, after in bounds], axis=axis)


def insert(x: ArrayLike, obj: Any, values: ArrayLike, /, axis: int | None = None) -> Any:
    """Insert `values` before these positions along `axis`; axis None: into the flattened array."""
    x, axis = with_axis_or_flattened("insert", x, axis)
    size = x.shape[axis]
    positions = _static_positions("insert", obj, size)
    is_single, positions = positions.ndim == 0, np.atleast_1d(positions)
    if positions.size and (positions.min() < 0 or positions.max() > size):
        refuse(OutOfBoundsError(f"insert: position {obj!r} is out of bounds for size {size} of axis {axis}"))
    values = convert(values, x.dtype)
    if is_single:
        # All values are inserted at one position.
        values = operand(moveaxis(reshape(values, (1,) * (x.ndim - values.ndim) + values.shape), 0, axis))
        positions = np.repeat(positions, values.shape[axis])
    shape = [len(positions) if a == axis else n for a, n in enumerate(x.shape)]
    values = operand(broadcast_to(values, shape))
    order = np.argsort(positions, kind="stable")
    pieces: list[Any] = []
    start = 0
    for k in order.tolist():
        pieces += [slice_axis(x, axis, start, int(positions[k])), slice_axis(values, axis, k, k + 1)]
        start = int(positions[k])
    return concat([*pieces, slice_axis(x, axis, start, size)], axis=axis)


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
    """Return whether the argument is a sequence of indices, and not a number of sections."""
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

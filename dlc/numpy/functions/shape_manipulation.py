"""Shape manipulation: reshape, transpose, broadcast, reorder and repeat elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.base import broadcast_shapes as _broadcast
from dlc.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer, errors_at_user_line
from dlc.numpy.apply import (
    ArrayLike,
    Axes,
    Operand,
    apply,
    are_different,
    as_index,
    as_shape,
    convert,
    iota,
    is_less,
    is_traced,
    normalize_axes,
    normalize_axis,
    operand,
    operand_in_scope,
    refuse,
    scope_of,
    with_axis_or_flattened,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.data_dependent import dynamic_arange
from dlc.shapes.dims import Dim, UndecidableError, is_known_different, is_nonnegative, is_static
from dlc.shapes.reshapes import inferred_size
from dlc.shapes.traced_dims import TracedDim, TracedSize, traced_sizes, untraced

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "diag", "diagflat",
    "diagonal", "expand_dims", "flip", "fliplr", "flipud", "matrix_transpose", "moveaxis", "ndim", "permute_dims",
    "ravel", "repeat", "reshape", "resize", "roll", "rollaxis", "rot90", "shape", "size", "squeeze", "swapaxes", "tile",
    "transpose",
]  # fmt: skip


@componentwise("x")
def reshape(x: ArrayLike, /, shape: int | Sequence[int], order: str = "C", *, copy: bool | None = None) -> Any:
    """Return the elements of `x` in another shape; one size may be -1. Order "C": row-major, "F": column-major."""
    x = operand_in_scope(x, shape)
    if _is_column_major("reshape", order):
        sizes = shape if isinstance(shape, Sequence) else (shape,)
        return transpose(reshape(transpose(x), sizes[::-1], copy=copy))
    if _holds_tracer(shape):
        refuse(
            UnsupportedError("reshape: a size is a traced value; sizes must be static: name the argument in static_argnames")
        )
    # A symbolic size is compared with the sizes of `x` as an expression.
    sizes, size = list(untraced(as_shape("reshape", shape, -1))), untraced(x.size)
    if sizes.count(-1) == 1:
        comparisons = partial(is_less, x, name="reshape"), partial(are_different, x, name="reshape")
        if (inferred := inferred_size(untraced(x.shape), sizes, *comparisons)) is not None:
            sizes[sizes.index(-1)] = inferred
    if -1 in sizes or is_known_different(prod(sizes), size):
        refuse(ShapeError(f"reshape: {x.size} elements of shape {x.shape} do not fill shape {tuple(sizes)}"))
    return x if tuple(sizes) == untraced(x.shape) else apply(dl.ReshapeOp, x, shape=tuple(sizes))


def _is_column_major(name: str, order: str) -> bool:
    """Return whether an order is "F". Raises UnsupportedError for orders that depend on the memory layout."""
    if order in ("A", "K"):
        refuse(
            UnsupportedError(
                f"{name}: order {order!r} depends on the memory layout, which a traced array does not have; use 'C'"
            )
        )
    if order not in ("C", "F"):
        refuse(ArgumentError(f"{name}: order {order!r}; expected 'C' or 'F'"))
    return order == "F"


def _holds_tracer(shape: Any) -> bool:
    return any(isinstance(s, Tracer) for s in (cast("Sequence[Any]", shape) if isinstance(shape, Sequence) else [shape]))


@componentwise("x")
def ravel(x: ArrayLike, /, order: str = "C") -> Any:
    """Return the elements of `x` as a vector. Order "C": row-major, "F": column-major."""
    return with_axis_or_flattened("ravel", transpose(x) if _is_column_major("ravel", order) else x, None)[0]


def shape(x: ArrayLike, /) -> tuple[int, ...]:
    """Return the shape of `x`."""
    return operand(x).shape


def ndim(x: ArrayLike, /) -> int:
    """Return the number of axes of `x`."""
    return operand(x).ndim


def size(x: ArrayLike, /, axis: Axes = None) -> int:
    """Return the number of elements of `x`, or of one slice along the axes."""
    x = operand(x)
    return prod(x.shape[a] for a in normalize_axes("size", x, axis))


@componentwise("x")
def permute_dims(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Any:
    """Permute the axes of `x`; reverse them if `axes` is None."""
    x = operand(x)
    axes = tuple(reversed(range(x.ndim))) if axes is None else axes
    order = normalize_axes("permute_dims", x, tuple(axes))
    if len(order) != x.ndim:
        refuse(ShapeError(f"permute_dims: axes {tuple(axes)} for shape {x.shape}; expected each of its {x.ndim} axes once"))
    return x if order == tuple(range(x.ndim)) else apply(dl.TransposeOp, x, permutation=order)


@componentwise("x")
def transpose(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Any:
    """Permute the axes of `x`; reverse them if `axes` is None."""
    return permute_dims(x, axes)


@componentwise("x")
def matrix_transpose(x: ArrayLike, /) -> Any:
    """Swap the last two axes."""
    x = operand(x)
    if x.ndim < 2:
        refuse(ShapeError(f"matrix_transpose: array of shape {x.shape}; expected a matrix, at least two axes"))
    return swapaxes(x, -1, -2)


@componentwise("x")
def swapaxes(x: ArrayLike, axis1: int, axis2: int, /) -> Any:
    """Swap two axes."""
    x = operand(x)
    a, b = (normalize_axis("swapaxes", x, axis) for axis in (axis1, axis2))
    axes = list(range(x.ndim))
    axes[a], axes[b] = b, a
    return permute_dims(x, axes)


@componentwise("x")
def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int], /) -> Any:
    """Move axes to new positions; the other axes keep their order."""
    x = operand(x)
    if source is None or destination is None:  # pyright: ignore[reportUnnecessaryComparison]
        refuse(DTypeError("moveaxis: axis None; expected an integer, or a tuple of integers"))
    sources, destinations = normalize_axes("moveaxis", x, source), normalize_axes("moveaxis", x, destination)
    if len(sources) != len(destinations):
        refuse(ShapeError(f"moveaxis: {len(sources)} source axes, {len(destinations)} destination axes; expected as many"))
    order = [a for a in range(x.ndim) if a not in sources]
    for position, axis in sorted(zip(destinations, sources, strict=True)):
        order.insert(position, axis)
    return permute_dims(x, order)


@componentwise("x")
def expand_dims(x: ArrayLike, /, axis: int | Sequence[int] = 0) -> Any:
    """Insert axes of size 1 at these positions of the result."""
    x = operand(x)
    if axis is None:  # pyright: ignore[reportUnnecessaryComparison]
        refuse(DTypeError("expand_dims: axis None; expected an integer, or a tuple of integers"))
    count = len(axis) if isinstance(axis, Sequence) else 1
    new_axes = normalize_axes("expand_dims", np.empty((1,) * (x.ndim + count)), axis)
    sizes = list(x.shape)
    for new_axis in sorted(new_axes):
        sizes.insert(new_axis, 1)
    return reshape(x, sizes)


@componentwise("x")
def squeeze(x: ArrayLike, /, axis: Axes = None) -> Any:
    """Remove axes of size 1: those that `axis` names, or all if None."""
    x = operand(x)
    removed = [a for a, s in enumerate(x.shape) if s == 1] if axis is None else normalize_axes("squeeze", x, axis)
    if any(x.shape[a] != 1 for a in removed):
        refuse(ShapeError(f"squeeze: axes {sorted(removed)} of shape {x.shape}; expected axes of size 1"))
    return reshape(x, [s for a, s in enumerate(x.shape) if a not in removed])


def atleast_1d(*arrays: ArrayLike) -> Any:
    """Return each array with at least one axis; a tuple if there are several."""
    return _with_axes(arrays, lambda shape: shape or (1,))


def atleast_2d(*arrays: ArrayLike) -> Any:
    """Return each array with at least two axes, of which the new ones come first; a tuple if there are several."""
    return _with_axes(arrays, lambda shape: (1,) * (2 - len(shape)) + shape)


def atleast_3d(*arrays: ArrayLike) -> Any:
    """Return each array with at least three axes: a vector becomes 1 × n × 1, a matrix m × n × 1; a tuple if several."""
    return _with_axes(arrays, lambda shape: shape if len(shape) > 2 else (*(1,) * (len(shape) < 2), *(shape or (1,)), 1))


@componentwise("x")
def _with_axes_of(x: ArrayLike, new_shape: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Any:
    x = operand(x)
    return reshape(x, new_shape(x.shape))


def _with_axes(arrays: Sequence[ArrayLike], new_shape: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Any:
    """Reshape each array to the new shape for its shape; return a tuple unless there is one."""
    results = [_with_axes_of(x, new_shape) for x in arrays]
    return results[0] if len(results) == 1 else tuple(results)


@componentwise("x")
def broadcast_to(x: ArrayLike, /, shape: int | Sequence[int]) -> Any:
    """Broadcast `x` to a shape."""
    x, sizes = operand(x), as_shape("broadcast_to", shape)
    return x if untraced(x.shape) == untraced(sizes) else apply(dl.BroadcastToOp, x, shape=sizes)


def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """Return the shape that these shapes broadcast to."""
    scope = scope_of(shapes)
    with errors_at_user_line():
        sizes = _broadcast("broadcast_shapes", *((s,) if isinstance(s, int | Dim) else s for s in untraced(shapes, scope)))
    return cast("tuple[int, ...]", sizes if scope is None else traced_sizes(sizes, scope))


def broadcast_arrays(*arrays: ArrayLike) -> list[Any]:
    """Broadcast arrays to their common shape."""
    operands = [operand(x) for x in arrays]
    sizes = broadcast_shapes(*(x.shape for x in operands))
    return [broadcast_to(x, sizes) for x in operands]


@componentwise("x")
def flip(x: ArrayLike, /, axis: Axes = None) -> Any:
    """Reverse the order of elements along axes; along all axes if None."""
    x = operand(x)
    axes = normalize_axes("flip", x, axis)
    return apply(dl.ReverseOp, x, axes=axes) if axes else x


@componentwise("x")
def flipud(x: ArrayLike, /) -> Any:
    """Reverse the order of elements along the first axis."""
    return flip(x, 0)


@componentwise("x")
def fliplr(x: ArrayLike, /) -> Any:
    """Reverse the order of elements along the second axis."""
    return flip(x, 1)


@componentwise("x")
def rot90(x: ArrayLike, /, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Rotate `x` by k · 90° in the plane of two axes, from the first toward the second."""
    x = operand(x)
    a, b = (normalize_axis("rot90", x, axis) for axis in axes)
    if a == b:
        refuse(ArgumentError(f"rot90: axes {axes} of shape {x.shape}; expected two axes"))
    if k % 4 == 2:
        return flip(x, axes)
    rotated = flip(x, b) if k % 4 == 1 else x
    rotated = swapaxes(rotated, a, b) if k % 2 else rotated
    return flip(rotated, b) if k % 4 == 3 else rotated


@componentwise("x")
def slice_axis(x: Operand, axis: int, start: TracedSize, stop: TracedSize, step: int = 1) -> Any:
    """Slice one axis from `start` to before `stop` by `step`."""
    starts: list[TracedSize] = [0] * x.ndim
    limits: list[TracedSize] = list(x.shape)
    starts[axis], limits[axis] = start, stop
    strides = [step if a == axis else 1 for a in range(x.ndim)]
    return apply(dl.SliceOp, x, starts=starts, limits=limits, strides=strides)


@componentwise("x")
def roll(x: ArrayLike, /, shift: int | Sequence[int] | Tracer, axis: Axes = None) -> Any:
    """Shift elements along `axis`, wrapping around at the ends; axis None: of the flattened array."""
    x = operand(x)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    shifts = tuple(shift) if isinstance(shift, Sequence) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        refuse(ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes; expected one for each"))
    for axis_shift, a in zip(shifts, axes, strict=True):
        x = operand(_roll_axis(x, axis_shift, normalize_axis("roll", x, a)))
    return x


def _roll_axis(x: Operand, shift: int | Tracer, axis: int) -> Any:
    size = x.shape[axis]
    split_point = _split_point(shift, size)
    if isinstance(split_point, int) and split_point == 0:
        return x
    if split_point is not None:
        parts = (slice_axis(x, axis, start, stop) for start, stop in ((split_point, size), (0, split_point)))
        return apply(dl.ConcatOp, *parts, axis=axis)
    # A symbolic size may be 0, which divides no shift. The remainder of the shift comes first: the difference from an extreme
    # shift overflows. Indices of elements that wrap around are negative.
    shifts, period = as_index(operand(shift)), apply(dl.MaximumOp, operand(size), np.asarray(1))
    distance = convert(apply(dl.ModOp, shifts, convert(period, shifts.dtype)), np.int64)
    return apply(dl.GatherOp, x, apply(dl.SubOp, operand(iota(size)), distance), axis=axis)


def _split_point(shift: int | Tracer, size: int) -> TracedSize | None:
    """Return the index of the element that a shift moves to the front; None if it is no polynomial of the sizes."""
    if isinstance(shift, TracedDim):
        # One program for all sizes is preferred to guards.
        if all(map(is_nonnegative, untraced((shift, size - shift)))):
            return size - shift
        return -shift if all(map(is_nonnegative, untraced((-shift, size + shift)))) else None
    if isinstance(size, TracedDim):
        with suppress(UndecidableError):
            if not isinstance(shift, Tracer) and abs(shift) <= size:
                return -shift if shift < 0 else size - shift
        return None
    return None if isinstance(shift, Tracer) else -shift % size if size else 0


@componentwise("x")
def repeat(x: ArrayLike, repeats: int | Sequence[int] | Array, /, axis: int | None = None) -> Any:
    """Repeat each element along `axis`: a common count, or one for each element; axis None: of the flattened array."""
    x, axis = with_axis_or_flattened("repeat", x, axis)
    if is_traced(repeats) and not isinstance(repeats, TracedDim):
        # Traced counts give a data-dependent size; negative counts are treated as 0.
        counts = convert(broadcast_to(cast("ArrayLike", repeats), (x.shape[axis],)), np.int64)
        counts = apply(dl.MaximumOp, counts, np.zeros((), np.int64))
        output_indices = dynamic_arange(apply(dl.ReduceSumOp, counts, axes=(0,)))
        run_limits = apply(dl.CumsumOp, counts, axis=0, exclusive=False, reverse=False)
        return apply(dl.GatherOp, x, apply(dl.SearchsortedOp, run_limits, output_indices, right=True), axis=axis)
    counts = np.asarray(1 if isinstance(repeats, TracedDim) else repeats)
    if counts.size != 1:
        if counts.shape != (x.shape[axis],):
            refuse(
                ShapeError(
                    f"repeat: {counts.size} repeats for size {x.shape[axis]} of axis {axis}; expected one for each element"
                )
            )
        return apply(dl.GatherOp, x, np.repeat(np.arange(counts.size), counts), axis=axis)
    leading, trailing = x.shape[: axis + 1], x.shape[axis + 1 :]
    count = cast(int, repeats) if isinstance(repeats, TracedDim) else int(counts.reshape(()))
    repeated = broadcast_to(reshape(x, (*leading, 1, *trailing)), (*leading, count, *trailing))
    return reshape(repeated, (*leading[:-1], leading[-1] * count, *trailing))


@componentwise("x")
def tile(x: ArrayLike, repetitions: int | Sequence[int], /) -> Any:
    """Repeat `x` along each of its last axes."""
    x = operand(x)
    counts = as_shape("tile: repetitions", repetitions)
    counts = (1,) * (x.ndim - len(counts)) + counts
    sizes = (1,) * (len(counts) - x.ndim) + x.shape
    tiled = broadcast_to(
        reshape(x, [n for s in sizes for n in (1, s)]),
        [size for n, s in zip(counts, sizes, strict=True) for size in (n, s)],
    )
    return reshape(tiled, [n * s for n, s in zip(counts, sizes, strict=True)])


@componentwise("x")
def diagonal(x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the elements of equal index along two axes, offset by `offset` along the second, as a new last axis."""
    x = operand(moveaxis(x, (axis1, axis2), (-2, -1)))
    *batch_shape, rows, columns = x.shape
    first = -offset * columns if offset < 0 else offset
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    count = count if is_nonnegative(untraced(count)) else max(0, count)
    diagonal_indices = apply(dl.AddOp, apply(dl.MulOp, operand(iota(count)), operand(columns + 1)), operand(first))
    return apply(dl.GatherOp, reshape(x, (*batch_shape, rows * columns)), diagonal_indices, axis=len(batch_shape))


@componentwise("x")
def diagflat(x: ArrayLike, /, k: int = 0) -> Any:
    """Return the matrix with the flattened array as its k-th diagonal."""
    return diag(ravel(x), k)


@componentwise("x")
def diag(x: ArrayLike, /, k: int = 0) -> Any:
    """Return the k-th diagonal of a matrix; for a vector, the matrix with the vector as its k-th diagonal."""
    x = operand(x)
    if x.ndim not in (1, 2):
        refuse(ShapeError(f"diag: array of shape {x.shape}; expected a vector or a matrix"))
    if x.ndim == 2:
        return diagonal(x, k)
    offset = k if k >= 0 else -k
    size = x.size + offset
    # Element i of the vector is in row i, or in row i - k below the main diagonal.
    zeros = broadcast_to(np.zeros((), x.dtype), (offset,))
    rows = apply(dl.ConcatOp, *((x, zeros) if k >= 0 else (zeros, x)), axis=0)
    indices = operand(iota(size))
    is_diagonal = apply(dl.EqualOp, apply(dl.AddOp, reshape(indices, (size, 1)), operand(k)), indices)
    return apply(dl.SelectOp, is_diagonal, reshape(rows, (size, 1)), np.zeros((), x.dtype))


@componentwise("x")
def rollaxis(x: ArrayLike, /, axis: int, start: int = 0) -> Any:
    """Move one axis to before the axis `start`; `start` = ndim moves it to the end. `moveaxis` names the result's position."""
    x = operand(x)
    source = normalize_axis("rollaxis", x, axis)
    target = start + x.ndim if start < 0 else start
    if not 0 <= target <= x.ndim:
        refuse(ArgumentError(f"rollaxis: start {start} of shape {x.shape}; expected {-x.ndim} to {x.ndim}"))
    return moveaxis(x, source, target - (source < target))


@componentwise("x")
def resize(x: ArrayLike, /, new_shape: int | Sequence[int]) -> Any:
    """Return the elements in this shape, which are repeated if it has more elements; zeros if `x` has none."""
    x, shape = operand(x), as_shape("resize", new_shape)
    if not is_static([*x.shape, *shape]):
        problem = f"resize: shape {x.shape} to {new_shape}"
        refuse(UndecidableError(f"{problem}; expected integers, since the number of repetitions depends on them"))
    size = prod(shape)
    if 0 in x.shape:
        return broadcast_to(convert(0, x.dtype), shape)
    return reshape(slice_axis(operand(tile(ravel(x), -(-size // prod(x.shape)))), 0, 0, size), shape)

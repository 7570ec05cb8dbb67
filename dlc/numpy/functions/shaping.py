"""Shapes: the elements of an array in another order, or repeated."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.base import broadcast_shapes as _broadcast
from dlc.dialects.dl.dtypes import element_type
from dlc.dims import Size, never_negative
from dlc.errors import ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer, blamed_on_user
from dlc.numpy.apply import ArrayLike, Axes, Operand, along, apply, axes_of, axis_of, convert, operand, places, refuse, sizes_of
from dlc.numpy.by_parts import by_parts
from dlc.numpy.places import numbers_below

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "diag", "diagonal",
    "expand_dims", "flip", "fliplr", "flipud", "matrix_transpose", "moveaxis", "ndim", "permute_dims", "ravel", "repeat",
    "reshape", "roll", "rot90", "shape", "size", "squeeze", "swapaxes", "tile", "transpose",
]  # fmt: skip


@by_parts("x")
def reshape(x: ArrayLike, /, shape: int | Sequence[int], order: str = "C", *, copy: bool | None = None) -> Any:
    """The elements of `x`, in row-major order, in another shape; one size may be -1."""
    x = operand(x)
    if order != "C":
        refuse(UnsupportedError(f"reshape: order {order!r}; transpose before and after instead"))
    if _holds_tracer(shape):
        refuse(UnsupportedError("reshape: a size that is a traced value; sizes must be known: pass it in static_argnames"))
    # A size that is open is the size of another array.
    sizes = list(sizes_of("reshape", shape, -1))
    known = prod(s for s in sizes if s != -1)
    if sizes.count(-1) == 1 and known and x.size % known == 0:
        sizes[sizes.index(-1)] = x.size // known
    if -1 in sizes or prod(sizes) != x.size:
        refuse(ShapeError(f"reshape: {x.size} elements of {x.shape} do not fit {tuple(sizes)}"))
    return x if tuple(sizes) == x.shape else apply(dl.ReshapeOp, x, shape=tuple(sizes))


def _holds_tracer(shape: Any) -> bool:
    return any(isinstance(s, Tracer) for s in (cast("Sequence[Any]", shape) if isinstance(shape, Sequence) else [shape]))


@by_parts("x")
def ravel(x: ArrayLike, /) -> Any:
    """The elements of `x`, in row-major order, as a vector."""
    return along("ravel", x, None)[0]


def shape(x: ArrayLike, /) -> tuple[int, ...]:
    """The sizes of `x`."""
    return operand(x).shape


def ndim(x: ArrayLike, /) -> int:
    """The number of axes of `x`."""
    return operand(x).ndim


def size(x: ArrayLike, /, axis: int | None = None) -> int:
    """The number of elements of `x`, or its size along `axis`."""
    x = operand(x)
    return x.size if axis is None else x.shape[axis_of("size", x, axis)]


@by_parts("x")
def permute_dims(x: ArrayLike, /, axes: Sequence[int]) -> Any:
    """The axes of `x` in another order."""
    x = operand(x)
    order = axes_of("permute_dims", x, tuple(axes))
    if len(order) != x.ndim:
        refuse(ShapeError(f"permute_dims: axes {tuple(axes)} for {x.shape}; name each of its {x.ndim} axes once"))
    return x if order == tuple(range(x.ndim)) else apply(dl.TransposeOp, x, permutation=order)


@by_parts("x")
def transpose(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Any:
    """The axes of `x` in the order `axes`; reversed if None."""
    x = operand(x)
    return permute_dims(x, tuple(reversed(range(x.ndim))) if axes is None else axes)


@by_parts("x")
def matrix_transpose(x: ArrayLike, /) -> Any:
    """The last two axes exchanged."""
    x = operand(x)
    if x.ndim < 2:
        refuse(ShapeError(f"matrix_transpose: an array of shape {x.shape} is no matrix; expected at least two axes"))
    return swapaxes(x, -1, -2)


@by_parts("x")
def swapaxes(x: ArrayLike, axis1: int, axis2: int, /) -> Any:
    """Two axes exchanged."""
    x = operand(x)
    a, b = (axis_of("swapaxes", x, axis) for axis in (axis1, axis2))
    axes = list(range(x.ndim))
    axes[a], axes[b] = b, a
    return permute_dims(x, axes)


@by_parts("x")
def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int], /) -> Any:
    """Axes moved to other places; the rest keep their order."""
    x = operand(x)
    moved, places = axes_of("moveaxis", x, source), axes_of("moveaxis", x, destination)
    if len(moved) != len(places):
        refuse(ShapeError(f"moveaxis: {len(moved)} axes for {len(places)} places; give as many"))
    order = [a for a in range(x.ndim) if a not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, order)


@by_parts("x")
def expand_dims(x: ArrayLike, /, axis: int | Sequence[int] = 0) -> Any:
    """New axes of size 1, at these axes of the result."""
    x = operand(x)
    count = len(axis) if isinstance(axis, Sequence) else 1
    places = axes_of("expand_dims", np.empty((1,) * (x.ndim + count)), axis)
    sizes = list(x.shape)
    for place in sorted(places):
        sizes.insert(place, 1)
    return reshape(x, sizes)


@by_parts("x")
def squeeze(x: ArrayLike, /, axis: Axes = None) -> Any:
    """Without the axes of size 1 that `axis` names; all of them if None."""
    x = operand(x)
    gone = [a for a, s in enumerate(x.shape) if s == 1] if axis is None else axes_of("squeeze", x, axis)
    if any(x.shape[a] != 1 for a in gone):
        refuse(ShapeError(f"squeeze: axes {sorted(gone)} of {x.shape} are not all of size 1"))
    return reshape(x, [s for a, s in enumerate(x.shape) if a not in gone])


@by_parts("x")
def atleast_1d(x: ArrayLike, /) -> Any:
    """`x`, with an axis if it has none."""
    x = operand(x)
    return x if x.ndim else reshape(x, 1)


@by_parts("x")
def atleast_2d(x: ArrayLike, /) -> Any:
    """`x`, with axes before its own if it has fewer than two."""
    x = operand(x)
    return x if x.ndim >= 2 else reshape(x, (1,) * (2 - x.ndim) + x.shape)


@by_parts("x")
def atleast_3d(x: ArrayLike, /) -> Any:
    """`x`, with axes around its own if it has fewer than three: a vector becomes 1 × n × 1, a matrix m × n × 1."""
    x = operand(atleast_1d(x))
    return x if x.ndim >= 3 else reshape(x, (*((1,) if x.ndim == 1 else ()), *x.shape, 1))


@by_parts("x")
def broadcast_to(x: ArrayLike, /, shape: int | Sequence[int]) -> Any:
    """`x` repeated along new axes and axes of size 1."""
    x, sizes = operand(x), sizes_of("broadcast_to", shape)
    return x if x.shape == sizes else apply(dl.BroadcastToOp, x, shape=sizes)


def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """The shape that these broadcast to."""
    with blamed_on_user():
        sizes = _broadcast("broadcast_shapes", *((s,) if isinstance(s, int) else tuple(s) for s in shapes))
    return cast("tuple[int, ...]", sizes)


def broadcast_arrays(*arrays: ArrayLike) -> list[Any]:
    """The arrays in the shape that they broadcast to."""
    operands = [operand(x) for x in arrays]
    sizes = broadcast_shapes(*(x.shape for x in operands))
    return [broadcast_to(x, sizes) for x in operands]


@by_parts("x")
def flip(x: ArrayLike, /, axis: Axes = None) -> Any:
    """The order along the axes reversed; along all if None."""
    x = operand(x)
    axes = axes_of("flip", x, axis)
    return apply(dl.ReverseOp, x, axes=axes) if axes else x


@by_parts("x")
def flipud(x: ArrayLike, /) -> Any:
    """The order along the first axis reversed."""
    return flip(x, 0)


@by_parts("x")
def fliplr(x: ArrayLike, /) -> Any:
    """The order along the second axis reversed."""
    return flip(x, 1)


@by_parts("x")
def rot90(x: ArrayLike, /, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """`x` turned by k · 90°, from the first of two axes to the second."""
    x = operand(x)
    a, b = axes_of("rot90", x, axes)
    if k % 4 == 2:
        return flip(x, axes)
    turned = flip(x, b) if k % 4 == 1 else x
    turned = swapaxes(turned, a, b) if k % 2 else turned
    return flip(turned, b) if k % 4 == 3 else turned


def part(x: Operand, axis: int, start: Size, stop: Size, step: int = 1) -> Any:
    """The places from `start` to before `stop` along one axis, each one or one in `step`."""
    starts, limits = list[Size]([0]) * x.ndim, list[Size](x.shape)
    starts[axis], limits[axis] = start, stop
    strides = [step if a == axis else 1 for a in range(x.ndim)]
    return apply(dl.SliceOp, x, starts=starts, limits=limits, strides=strides)


@by_parts("x")
def roll(x: ArrayLike, /, shift: int | Sequence[int] | Tracer, axis: Axes = None) -> Any:
    """The elements moved by `shift` places along `axis`, those that leave it at the other end; None: in the flattened array."""
    x = operand(x)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = tuple(shift) if isinstance(shift, Sequence) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        refuse(ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes; give one for each"))
    for by, a in zip(shifts, axes, strict=True):
        x = operand(_rolled(x, by, axis_of("roll", x, a)))
    return x


def _rolled(x: Operand, shift: int | Tracer, axis: int) -> Any:
    size = x.shape[axis]
    if isinstance(shift, Tracer):
        places = apply(dl.SubOp, np.arange(size), apply(dl.CastOp, shift, to=element_type(np.int64)))
        return apply(dl.GatherOp, x, apply(dl.ModOp, places, np.asarray(max(size, 1))), axis=axis)
    cut = size - shift % size if size else 0
    if cut == size:
        return x
    return apply(dl.ConcatOp, *(part(x, axis, start, stop) for start, stop in ((cut, size), (0, cut))), axis=axis)


@by_parts("x")
def repeat(x: ArrayLike, repeats: int | Sequence[int] | Array, /, axis: int | None = None) -> Any:
    """Each element along `axis` so many times in a row (as often as its entry of `repeats` says); None: flattened."""
    x, axis = along("repeat", x, axis)
    if isinstance(repeats, Tracer):
        # Of traced ones, which data has, those below 0 count as 0.
        counts = apply(dl.MaximumOp, convert(broadcast_to(repeats, (x.shape[axis],)), np.int64), np.zeros((), np.int64))
        numbers = numbers_below(apply(dl.ReduceSumOp, counts, axes=(0,)))
        ends = apply(dl.CumsumOp, counts, axis=0, exclusive=False, reverse=False)
        return apply(dl.GatherOp, x, apply(dl.SearchsortedOp, ends, numbers, right=True), axis=axis)
    counts = np.asarray(repeats)
    if counts.size != 1:
        if counts.shape != (x.shape[axis],):
            refuse(
                ShapeError(f"repeat: {counts.size} repeats for size {x.shape[axis]} of axis {axis}; give one for each place")
            )
        return apply(dl.GatherOp, x, np.repeat(np.arange(x.shape[axis]), counts), axis=axis)
    before, after, count = x.shape[: axis + 1], x.shape[axis + 1 :], int(counts.reshape(()))
    spread = broadcast_to(reshape(x, (*before, 1, *after)), (*before, count, *after))
    return reshape(spread, (*before[:-1], before[-1] * count, *after))


@by_parts("x")
def tile(x: ArrayLike, repetitions: int | Sequence[int], /) -> Any:
    """`x` so many times side by side along each of its last axes."""
    x = operand(x)
    counts = [int(n) for n in np.atleast_1d(repetitions)]
    if any(n < 0 for n in counts):
        refuse(ShapeError(f"tile: {repetitions} repetitions of {x.shape}; expected numbers from 0 on"))
    counts = [1] * (x.ndim - len(counts)) + counts
    sizes = (1,) * (len(counts) - x.ndim) + x.shape
    spread = broadcast_to(
        reshape(x, [part for s in sizes for part in (1, s)]),
        [part for n, s in zip(counts, sizes, strict=True) for part in (n, s)],
    )
    return reshape(spread, [n * s for n, s in zip(counts, sizes, strict=True)])


@by_parts("x")
def diagonal(x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements of equal index along two axes, `offset` further along the second, as a new last axis."""
    x = operand(moveaxis(x, (axis1, axis2), (-2, -1)))
    *rest, rows, columns = x.shape
    first = -offset * columns if offset < 0 else offset
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    count = count if never_negative(count) else max(0, count)
    chosen = apply(dl.AddOp, apply(dl.MulOp, operand(places(count)), operand(columns + 1)), operand(first))
    return apply(dl.GatherOp, reshape(x, (*rest, rows * columns)), chosen, axis=len(rest))


@by_parts("x")
def diag(x: ArrayLike, /, k: int = 0) -> Any:
    """The diagonal `k` above the main one of a matrix; of a vector, the matrix that has it there and 0 elsewhere."""
    x = operand(x)
    if x.ndim != 1:
        return diagonal(x, k)
    size = x.size + abs(k)
    # Row i holds element i, or i + k below the main diagonal.
    beside = np.zeros(abs(k), x.dtype)
    spread = apply(dl.ConcatOp, *((x, beside) if k > 0 else (beside, x)), axis=0) if k else x
    numbers = operand(places(size))
    chosen = apply(dl.EqualOp, apply(dl.AddOp, reshape(numbers, (size, 1)), operand(k)), numbers)
    return apply(dl.SelectOp, chosen, reshape(spread, (size, 1)), np.zeros((), x.dtype))

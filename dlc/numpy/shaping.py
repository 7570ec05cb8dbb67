"""Shapes, joining, and indexing with slices and integers."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.errors import ShapeError, UnsupportedError
from dlc.frontend.trace import Tracer, at_user_line
from dlc.numpy.apply import ArrayLike, Operand, apply, operand, promote


def reshape(x: ArrayLike, /, shape: int | Sequence[int]) -> Any:
    """The elements of `x`, in row-major order, in another shape; one size may be -1."""
    x = operand(x)
    sizes = [shape] if isinstance(shape, int) else list(shape)
    if sizes.count(-1) == 1:
        known = int(np.prod([s for s in sizes if s != -1], dtype=np.int64))
        if known == 0 or x.size % known:
            raise at_user_line(ShapeError(f"reshape: {x.size} elements of {x.shape} do not fit {tuple(sizes)}"))
        sizes[sizes.index(-1)] = x.size // known
    return x if tuple(sizes) == x.shape else apply(dl.ReshapeOp, x, shape=tuple(sizes))


def permute_dims(x: ArrayLike, /, axes: Sequence[int]) -> Any:
    """The axes of `x` in another order."""
    x = operand(x)
    return apply(dl.TransposeOp, x, permutation=tuple(a % x.ndim for a in axes))


def transpose(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Any:
    """The axes of `x` in the order `axes`; reversed if None."""
    x = operand(x)
    return permute_dims(x, tuple(reversed(range(x.ndim))) if axes is None else axes)


def matrix_transpose(x: ArrayLike, /) -> Any:
    """The last two axes exchanged."""
    return swapaxes(x, -1, -2)


def swapaxes(x: ArrayLike, axis1: int, axis2: int, /) -> Any:
    """Two axes exchanged."""
    x = operand(x)
    axes = list(range(x.ndim))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return permute_dims(x, axes)


def expand_dims(x: ArrayLike, /, axis: int = 0) -> Any:
    """A new axis of size 1 at `axis` of the result."""
    x = operand(x)
    place = axis % (x.ndim + 1)
    return reshape(x, (*x.shape[:place], 1, *x.shape[place:]))


def squeeze(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> Any:
    """Without the axes of size 1 that `axis` names; all of them if None."""
    x = operand(x)
    axes = [a for a, s in enumerate(x.shape) if s == 1] if axis is None else [axis] if isinstance(axis, int) else list(axis)
    gone = {a % x.ndim for a in axes}
    if any(x.shape[a] != 1 for a in gone):
        raise at_user_line(ShapeError(f"squeeze: axes {sorted(gone)} of {x.shape} are not all of size 1"))
    return reshape(x, [s for a, s in enumerate(x.shape) if a not in gone])


def broadcast_to(x: ArrayLike, /, shape: Sequence[int]) -> Any:
    """`x` repeated along new axes and axes of size 1."""
    return apply(dl.BroadcastToOp, operand(x), shape=tuple(shape))


def concat(arrays: Sequence[ArrayLike], /, *, axis: int = 0) -> Any:
    """The arrays one after the other along `axis`."""
    operands = promote(*arrays)
    return apply(dl.ConcatOp, *operands, axis=axis % operands[0].ndim) if len(operands) > 1 else operands[0]


concatenate = concat


def stack(arrays: Sequence[ArrayLike], /, *, axis: int = 0) -> Any:
    """The arrays side by side along a new axis."""
    return concat([expand_dims(x, axis) for x in arrays], axis=axis % (operand(arrays[0]).ndim + 1))


def flip(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> Any:
    """The order along the axes reversed; along all if None."""
    x = operand(x)
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    return apply(dl.ReverseOp, x, axes=tuple(a % x.ndim for a in axes))


def pad(x: ArrayLike, /, pad_width: Sequence[tuple[int, int]], mode: str = "constant", constant_values: float = 0) -> Any:
    """New elements around `x`: `(before, after)` for each axis; mode constant, edge, reflect or wrap."""
    x = operand(x)
    low, high = [p[0] for p in pad_width], [p[1] for p in pad_width]
    return apply(dl.PadOp, x, np.asarray(constant_values, x.dtype), low=low, high=high, pad_mode=mode)


def take(x: ArrayLike, indices: ArrayLike, /, *, axis: int) -> Any:
    """The slices of `x` along `axis` that `indices` name; negative ones count from the end, others are moved inside."""
    return apply(dl.GatherOp, operand(x), operand(indices), axis=axis)


def getitem(x: Tracer, key: Any) -> Any:
    """`x[key]` for integers, slices, None, Ellipsis, and at most one integer array."""
    keys = _expanded(x, cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,))
    starts, limits, strides, flipped = [0] * x.ndim, list(x.shape), [1] * x.ndim, list[int]()
    gathers: list[tuple[int, Operand]] = []
    shape: list[int | None] = []
    axis = 0
    for k in keys:
        if k is None:
            shape.append(1)
            continue
        size = x.shape[axis]
        if isinstance(k, int):
            if not -size <= k < size:
                raise at_user_line(ShapeError(f"index {k} is out of bounds for axis {axis} of {x.shape}"))
            starts[axis], limits[axis] = k % size, k % size + 1
        elif isinstance(k, slice):
            start, stop, step = k.indices(size)
            count = len(range(start, stop, step))
            if step < 0:
                flipped.append(axis)
                start, step = start + (count - 1) * step, -step
            starts[axis], limits[axis], strides[axis] = start, max(start, start + (count - 1) * step + 1), step
            shape.append(count)
        else:
            gathers.append((axis, k))
            shape.append(None)
        axis += 1
    result: Operand = x
    if starts != [0] * x.ndim or limits != list(x.shape) or set(strides) != {1}:
        result = apply(dl.SliceOp, x, starts=starts, limits=limits, strides=strides)
    if flipped:
        result = apply(dl.ReverseOp, result, axes=tuple(flipped))
    if not gathers:
        return reshape(result, [cast(int, s) for s in shape])
    if len(gathers) > 1:
        raise at_user_line(UnsupportedError("indexing with several arrays; use dlc.numpy.take along one axis after the other"))
    (axis, indices), place = gathers[0], shape.index(None)
    taken = apply(dl.GatherOp, result, indices, axis=axis)
    return reshape(taken, [*cast("list[int]", shape[:place]), *indices.shape, *cast("list[int]", shape[place + 1 :])])


def _expanded(x: Tracer, keys: tuple[Any, ...]) -> list[int | slice | Operand | None]:
    """One entry per axis and per new axis."""
    used = sum(k is not None and not isinstance(k, EllipsisType) for k in keys)
    if used > x.ndim:
        raise at_user_line(ShapeError(f"{used} indices for an array of rank {x.ndim}"))
    result: list[int | slice | Operand | None] = []
    rest = [slice(None)] * (x.ndim - used)
    for k in keys:
        if isinstance(k, EllipsisType):
            result += rest
            rest = []
        elif k is None or isinstance(k, slice):
            result.append(cast("slice | None", k))
        elif isinstance(k, int | np.integer) and not isinstance(k, bool):
            result.append(int(cast(int, k)))
        else:
            array = operand(k)
            if array.dtype.kind not in "iu":
                problem = f"indexing with {array.dtype} values has no static shape; use dlc.numpy.where(mask, x, other)"
                raise at_user_line(UnsupportedError(problem))
            result.append(array)
    return [*result, *rest]

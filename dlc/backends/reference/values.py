"""Run-time representation of SSA values: NumPy arrays, and views of buffers.

A scalar is a 0-d array, a vector or tensor an array of its shape, a memref a `MemrefView`. While the points of a grid run in
lockstep, a value that varies between points has an additional leading axis with one entry per point; a uniform value has none.
With NumPy's broadcasting, every elementwise rule works for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import DlcError
from dlc.ir import Attribute, IntegerType, MemRefType, NoneAttr, Operation, SSAValue, TensorType, VectorType

Array: TypeAlias = NDArray[Any]


class EvaluationError(DlcError):
    """Invalid IR: it accesses memory outside a buffer, or its values contradict its types."""


@dataclass(frozen=True, slots=True)
class MemrefView:
    """A memref: a strided view of a flat buffer, in elements.

    `offset` is an integer, or an array with one entry per point in lockstep; likewise `origin`, the start of the underlying
    allocation.
    """

    base: Array
    offset: int | Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    origin: int | Array = 0

    @staticmethod
    def of(array: Array) -> MemrefView:
        """Return a view of all of `array`, which shares its memory if it is C-contiguous."""
        return MemrefView(array.reshape(-1), 0, array.shape, contiguous_strides(array.shape))

    @staticmethod
    def allocate(type: MemRefType[Attribute], shape: tuple[int, ...], points: int | None) -> MemrefView:
        """Allocate a buffer, or one per point; it is filled with a marker for uninitialized memory (NaN for floats)."""
        strides = contiguous_strides(shape) if isinstance(type.layout, NoneAttr) else strides_of(type)
        size = span(shape, strides)
        dtype = numpy_dtype(type.element_type)
        base = np.full(size * (points or 1), uninitialized_marker(dtype), dtype)
        start = 0 if points is None else np.arange(points) * size
        return MemrefView(base, start, shape, strides, start)

    def subview(self, offset: int | Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> MemrefView:
        """Return another view of the same allocation."""
        return MemrefView(self.base, offset, shape, strides, self.origin)

    def of_type(self, dtype: np.dtype[Any]) -> MemrefView:
        """Reinterpret the memory as elements of another dtype; the offset must be the same for all points."""
        if dtype == self.base.dtype:
            return self
        start, size = int(self.offset) * self.base.itemsize, span(self.shape, self.strides)
        flat = self.base.view(np.uint8)[start : start + size * dtype.itemsize].view(dtype)
        return MemrefView(flat, 0, self.shape, self.strides)

    def as_allocation(self) -> MemrefView:
        """Return the view as if it were a separate allocation."""
        return MemrefView(self.base, self.offset, self.shape, self.strides, self.offset)

    def element(self, k: int) -> MemrefView:
        """Return entry `k` along the first axis as if it were a separate allocation."""
        offset = self.offset + k * self.strides[0]
        return MemrefView(self.base, offset, self.shape[1:], self.strides[1:], offset)

    def per_point(self, change: Callable[[Array], Array]) -> MemrefView:
        """Return the view with `change` applied to its per-point entries."""
        offset, origin = (change(np.asarray(x)) if np.ndim(x) else x for x in (self.offset, self.origin))
        return MemrefView(self.base, offset, self.shape, self.strides, origin)

    def read(self, owner: Operation) -> Array:
        """Return the elements: a view of memory, or a copy if the offset varies between points."""
        return gather(owner, self.base, self.offset, self.shape, self.strides)

    def write(self, owner: Operation, values: Array) -> None:
        """Store elements; `values` are broadcast."""
        scatter(owner, self.base, self.offset, self.shape, self.strides, values)

    def element_offset(self, owner: Operation, indices: Sequence[Array], extent: Sequence[int] | None = None) -> int | Array:
        """Return the offset of the element at `indices`; `extent` elements per axis must be in bounds from there."""
        offset: Any = self.offset
        for axis, (i, size, stride) in enumerate(zip(indices, self.shape, self.strides, strict=True)):
            last = size - (extent[axis] if extent is not None else 1)
            low, high = min_and_max(i)
            if low < 0 or high > last:
                raise EvaluationError(f"{describe(owner)}: index {axis} is {low}..{high}, outside 0..{last} of {self.shape}")
            offset = offset + i * stride
        return offset


Value: TypeAlias = "Array | MemrefView"


def describe(op: Operation) -> str:
    """Return the op's name and source location, for messages."""
    location = str(op.location)
    return op.name if "unknown" in location else f"{op.name} {location}"


def min_and_max(integers: int | Array) -> tuple[int, int]:
    """Return the minimum and maximum of an integer or an array."""
    if isinstance(integers, np.ndarray) and integers.ndim:
        return (int(integers.min()), int(integers.max())) if integers.size else (0, 0)
    return int(integers), int(integers)


def uninitialized_marker(dtype: np.dtype[Any]) -> Any:
    """Return the marker value of uninitialized memory."""
    kind = dtype.kind
    return True if kind == "b" else np.iinfo(dtype).max // 2 if kind in "iu" else np.nan


def rank(type: Attribute) -> int:
    """Return the number of axes of one point's value of this type."""
    return type.get_num_dims() if isinstance(type, VectorType | TensorType | MemRefType) else 0


def shape_of(type: Attribute | SSAValue) -> tuple[int, ...]:
    """Return the shape of a vector, tensor or memref type, or of a value of such a type."""
    return cast(Any, type.type if isinstance(type, SSAValue) else type).get_shape()


def element_type(type: Attribute) -> Attribute:
    """Return the element type of a shaped type; a scalar type is its own element type."""
    return cast(Attribute, type.element_type) if isinstance(type, VectorType | TensorType | MemRefType) else type


def dtype_of(type: Attribute) -> np.dtype[Any]:
    """Return the dtype of values of this type."""
    return numpy_dtype(element_type(type))


def is_bool(array: Array) -> bool:
    """Return whether an array has dtype bool."""
    return array.dtype.kind == "b"


def bit_width(type: Attribute) -> int:
    """Return the number of bits of an element; `index` has 64."""
    element = element_type(type)
    return int(cast(Any, element).width.data) if isinstance(element, IntegerType) else numpy_dtype(element).itemsize * 8


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return row-major strides, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def strides_of(type: MemRefType[Attribute]) -> tuple[int, ...]:
    """Return the strides of a memref type; raises EvaluationError for a layout without static strides."""
    strides = type.get_strides()
    if strides is None or any(s is None for s in strides):
        raise EvaluationError(f"{type}: only buffers with static strides can be allocated")
    return cast(tuple[int, ...], tuple(strides))


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements from the first to the last element, both included."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)


def expand(value: Array, axes: int) -> Array:
    """Append axes of size 1, so that per-point entries broadcast with values that have more axes."""
    return value.reshape(value.shape + (1,) * axes) if value.ndim else value


# Relative offsets are cached for tiles of up to this many elements: most tiles are small and accessed repeatedly.
_MAX_CACHED_ELEMENTS = 1024


def offsets_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """Return the offset of each element relative to the first."""
    return (_cached_grid if math.prod(shape) <= _MAX_CACHED_ELEMENTS else _grid)(shape, strides)


def _grid(shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    grid: Array = np.zeros((), np.int64)
    for size, stride in zip(shape, strides, strict=True):
        grid = grid[..., None] + np.arange(size, dtype=np.int64) * stride
    return grid


_cached_grid = lru_cache(4096)(_grid)


def _check(owner: Operation, base: Array, offset: int | Array, shape: Sequence[int], strides: Sequence[int]) -> None:
    """Raise EvaluationError if an access exceeds the buffer."""
    low = high = 0
    for size, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    first, last = min_and_max(offset)
    if first + low < 0 or last + high >= base.size:
        raise EvaluationError(f"{describe(owner)}: elements {first + low}..{last + high} of a buffer of {base.size}")


def strided(array: Array, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """Return a view of a flat array; `offset` and `strides` are in elements. The caller has checked the bounds."""
    item = array.strides[0]
    return as_strided(array[offset:], tuple(shape), tuple(s * item for s in strides))


def _rows(base: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Array, Array] | None:
    """For contiguous rows, return all windows of the row length in the buffer, and the relative starts of the rows.

    Copying a row costs as much as addressing one element.
    """
    if not shape or shape[-1] < 2 or strides[-1] != 1:
        return None
    length = shape[-1]
    return strided(base, 0, (base.size - length + 1, length), (1, 1)), offsets_of(shape[:-1], strides[:-1])


def gather(owner: Operation, base: Array, offset: int | Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """Return the elements at `offset` with these strides: a view of memory, or copies for an array of offsets."""
    if 0 in shape:
        return np.empty((*np.shape(offset), *shape), base.dtype)
    _check(owner, base, offset, shape, strides)
    if np.ndim(offset) == 0:
        return strided(base, int(offset), shape, strides)
    starts = cast(Array, offset)
    if rows := _rows(base, shape, strides):
        windows, steps = rows
        return windows[expand(starts, steps.ndim) + steps]
    steps = offsets_of(shape, strides)
    return base.take(expand(starts, steps.ndim) + steps)


def scatter(
    owner: Operation, base: Array, offset: int | Array, shape: tuple[int, ...], strides: tuple[int, ...], values: Array
) -> None:
    """Store elements at `offset` with these strides; for an array of offsets, `values` has a leading axis."""
    if 0 in shape:
        return
    if not base.flags.writeable:
        raise EvaluationError(f"{describe(owner)}: writes to a read-only buffer")
    _check(owner, base, offset, shape, strides)
    if np.ndim(offset) == 0:
        if values.ndim > len(shape) and len(values) == 1:
            # A grid of one point: drop the axis of points.
            values = values[0]
        if values.ndim > len(shape):
            raise EvaluationError(f"{describe(owner)}: points of a grid write different values to one element")
        strided(base, int(offset), shape, strides)[...] = values
        return
    starts = cast(Array, offset)
    if rows := _rows(base, shape, strides):
        windows, steps = rows
        windows[expand(starts, steps.ndim) + steps] = values
        return
    steps = offsets_of(shape, strides)
    base[expand(starts, steps.ndim) + steps] = values

"""What SSA values are at run time: NumPy arrays, and views of buffers.

A scalar is a 0-d array, a vector or tensor an array of its shape, a memref a `View`. While the points of a grid run in
lockstep, a value that differs between them has one more axis, in front, with an entry per point; a value that is the
same for all has not. NumPy's broadcasting then makes every elementwise rule serve both.
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
    """IR that the evaluator cannot run: it reads outside a buffer, or its values contradict its types."""


@dataclass(frozen=True, slots=True)
class View:
    """A memref: places in a flat buffer, counted in elements.

    `offset` is a number, or an array with one entry per point in lockstep; `origin`, likewise, is where the allocation
    starts that this is a view of.
    """

    base: Array
    offset: int | Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    origin: int | Array = 0

    @staticmethod
    def of(array: Array) -> View:
        """A view of all of `array`, which shares its memory if it is C-contiguous."""
        return View(array.reshape(-1), 0, array.shape, contiguous_strides(array.shape))

    @staticmethod
    def allocate(t: MemRefType[Attribute], shape: tuple[int, ...], points: int | None) -> View:
        """A new buffer, or one for each point; its contents are conspicuous garbage (NaN where there is one)."""
        strides = contiguous_strides(shape) if isinstance(t.layout, NoneAttr) else strides_of(t)
        size = span(shape, strides)
        dtype = numpy_dtype(t.element_type)
        base = np.full(size * (points or 1), garbage(dtype), dtype)
        start = 0 if points is None else np.arange(points) * size
        return View(base, start, shape, strides, start)

    def part(self, offset: int | Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
        """Another view of the same allocation."""
        return View(self.base, offset, shape, strides, self.origin)

    def of_type(self, dtype: np.dtype[Any]) -> View:
        """The same memory as elements of another size, from a place that is the same for all points on."""
        if dtype == self.base.dtype:
            return self
        start, size = int(self.offset) * self.base.itemsize, span(self.shape, self.strides)
        flat = self.base.view(np.uint8)[start : start + size * dtype.itemsize].view(dtype)
        return View(flat, 0, self.shape, self.strides)

    def alone(self) -> View:
        """The same places, as an allocation of their own."""
        return View(self.base, self.offset, self.shape, self.strides, self.offset)

    def element(self, k: int) -> View:
        """Entry `k` along the first axis, as an allocation of its own."""
        offset = self.offset + k * self.strides[0]
        return View(self.base, offset, self.shape[1:], self.strides[1:], offset)

    def per_point(self, change: Callable[[Array], Array]) -> View:
        """The view with its entries per point changed."""
        offset, origin = (change(np.asarray(x)) if np.ndim(x) else x for x in (self.offset, self.origin))
        return View(self.base, offset, self.shape, self.strides, origin)

    def read(self, owner: Operation) -> Array:
        """The elements, as an array of its own for points in lockstep, else as a view of memory."""
        return gather(owner, self.base, self.offset, self.shape, self.strides)

    def write(self, owner: Operation, values: Array) -> None:
        """Stores elements; `values` broadcast."""
        scatter(owner, self.base, self.offset, self.shape, self.strides, values)

    def place(self, owner: Operation, indices: Sequence[Array], extent: Sequence[int] | None = None) -> int | Array:
        """The offset of the element at `indices`, from which `extent` more elements per axis must exist."""
        offset: Any = self.offset
        for axis, (i, size, stride) in enumerate(zip(indices, self.shape, self.strides, strict=True)):
            last = size - (extent[axis] if extent is not None else 1)
            low, high = limits(i)
            if low < 0 or high > last:
                raise EvaluationError(f"{describe(owner)}: index {axis} is {low}..{high}, outside 0..{last} of {self.shape}")
            offset = offset + i * stride
        return offset


Value: TypeAlias = "Array | View"


def describe(op: Operation) -> str:
    """The op's name and source place, for messages."""
    place = str(op.location)
    return op.name if "unknown" in place else f"{op.name} {place}"


def limits(numbers: int | Array) -> tuple[int, int]:
    """The least and the greatest of some numbers."""
    if isinstance(numbers, np.ndarray) and numbers.ndim:
        return (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    return int(numbers), int(numbers)


def garbage(dtype: np.dtype[Any]) -> Any:
    """What unwritten memory holds."""
    kind = dtype.kind
    return True if kind == "b" else np.iinfo(dtype).max // 2 if kind in "iu" else np.nan


def rank(t: Attribute) -> int:
    """The number of axes of one point's value of this type."""
    return t.get_num_dims() if isinstance(t, VectorType | TensorType | MemRefType) else 0


def shape_of(t: Attribute | SSAValue) -> tuple[int, ...]:
    """The sizes of a vector, tensor or memref type, or of a value of one."""
    return cast(Any, t.type if isinstance(t, SSAValue) else t).get_shape()


def element_type(t: Attribute) -> Attribute:
    return cast(Attribute, t.element_type) if isinstance(t, VectorType | TensorType | MemRefType) else t


def dtype_of(t: Attribute) -> np.dtype[Any]:
    """The dtype of values of this type."""
    return numpy_dtype(element_type(t))


def is_bool(array: Array) -> bool:
    return array.dtype.kind == "b"


def bit_width(t: Attribute) -> int:
    """The number of bits of an element; `index` has 64."""
    element = element_type(t)
    return int(cast(Any, element).width.data) if isinstance(element, IntegerType) else numpy_dtype(element).itemsize * 8


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def strides_of(t: MemRefType[Attribute]) -> tuple[int, ...]:
    """The strides of a memref type; raises EvaluationError for a layout that has none."""
    strides = t.get_strides()
    if strides is None or any(s is None for s in strides):
        raise EvaluationError(f"{t}: only buffers with known strides can be allocated")
    return cast(tuple[int, ...], tuple(strides))


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first to the last element, both included."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)


def expand(value: Array, axes: int) -> Array:
    """Appends axes of size 1, so that an entry per point meets values with more axes."""
    return value.reshape(value.shape + (1,) * axes) if value.ndim else value


# Of how many elements of a tile the places are kept: most tiles are small, and met again and again.
_KEPT = 1024


def _steps(shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """Where each element is, from the first one on."""
    return (_kept_grid if math.prod(shape) <= _KEPT else _grid)(shape, strides)


def _grid(shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    grid: Array = np.zeros((), np.int64)
    for size, stride in zip(shape, strides, strict=True):
        grid = grid[..., None] + np.arange(size, dtype=np.int64) * stride
    return grid


_kept_grid = lru_cache(4096)(_grid)


def _check(owner: Operation, base: Array, offset: int | Array, shape: Sequence[int], strides: Sequence[int]) -> None:
    low = high = 0
    for size, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    first, last = limits(offset)
    if first + low < 0 or last + high >= base.size:
        raise EvaluationError(f"{describe(owner)}: elements {first + low}..{last + high} of a buffer of {base.size}")


def strided(array: Array, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """A view of a flat array; `offset` and `strides` in elements. The caller has checked the bounds."""
    item = array.strides[0]
    return as_strided(array[offset:], tuple(shape), tuple(s * item for s in strides))


def _rows(base: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Array, Array] | None:
    """For contiguous rows: every run of a row's length in the buffer, and the rows' relative starts.

    Copying a row costs as much as addressing one element.
    """
    if not shape or shape[-1] < 2 or strides[-1] != 1:
        return None
    length = shape[-1]
    return strided(base, 0, (base.size - length + 1, length), (1, 1)), _steps(shape[:-1], strides[:-1])


def gather(owner: Operation, base: Array, offset: int | Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The elements at `offset` with these strides: a view of memory for one offset, copies for an array of offsets."""
    if 0 in shape:
        return np.empty((*np.shape(offset), *shape), base.dtype)
    _check(owner, base, offset, shape, strides)
    if np.ndim(offset) == 0:
        return strided(base, int(offset), shape, strides)
    starts = cast(Array, offset)
    if rows := _rows(base, shape, strides):
        runs, steps = rows
        return runs[expand(starts, steps.ndim) + steps]
    steps = _steps(shape, strides)
    return base.take(expand(starts, steps.ndim) + steps)


def scatter(
    owner: Operation, base: Array, offset: int | Array, shape: tuple[int, ...], strides: tuple[int, ...], values: Array
) -> None:
    """Stores elements at `offset` with these strides; several offsets take an array with a leading axis."""
    if 0 in shape:
        return
    if not base.flags.writeable:
        raise EvaluationError(f"{describe(owner)}: writes to a read-only buffer")
    _check(owner, base, offset, shape, strides)
    if np.ndim(offset) == 0:
        if values.ndim > len(shape) and len(values) == 1:
            # A grid of one point: what was stored per point before is one value.
            values = values[0]
        if values.ndim > len(shape):
            raise EvaluationError(f"{describe(owner)}: points of a grid write different values to one place")
        strided(base, int(offset), shape, strides)[...] = values
        return
    starts = cast(Array, offset)
    if rows := _rows(base, shape, strides):
        runs, steps = rows
        runs[expand(starts, steps.ndim) + steps] = values
        return
    steps = _steps(shape, strides)
    base[expand(starts, steps.ndim) + steps] = values

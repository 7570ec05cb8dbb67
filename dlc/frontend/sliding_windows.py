"""Sliding windows of convolution and pooling over the spatial axes of images [N, *S, C]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.size_limits import require_axis_length
from dlc.shapes.dims import Size, are_equal


@dataclass(frozen=True)
class SlidingWindows:
    """Sliding windows over the spatial axes; `low` and `high` are the padding."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the dilated windows."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def properties(self) -> dict[str, tuple[int, ...]]:
        """The properties of a pooling op over padded images."""
        return {"kernel": self.kernel, "strides": self.strides, "dilations": self.dilations}

    def along(self, axis: int) -> SlidingWindows:
        """Return the windows that slide along one axis only, over images with one element along the others."""

        def only(values: Sequence[int], other: int) -> tuple[int, ...]:
            return tuple(value if a == axis else other for a, value in enumerate(values))

        kernel, strides, dilations = (only(values, 1) for values in (self.kernel, self.strides, self.dilations))
        return SlidingWindows(kernel, strides, dilations, only(self.low, 0), only(self.high, 0))

    def starts(self, axis: int, size: int) -> Array:
        """Return the index of the first element of each window along an axis of this size; negative in the leading padding."""
        count = (self.low[axis] + size + self.high[axis] - self.extents[axis]) // self.strides[axis] + 1
        return np.arange(count) * self.strides[axis] - self.low[axis]

    def indices(self, axis: int, size: int) -> Array:
        """Return the indices of the elements of each window along an axis, [windows, kernel]."""
        return self.starts(axis, size)[:, np.newaxis] + np.arange(self.kernel[axis]) * self.dilations[axis]

    def counts(self, axis: int, size: int, low: int, high: int) -> Array:
        """Return the number of elements of each window along an axis, including `low` and `high` of its padding; at least 1."""
        # ⌈(bound - start) / dilation⌉ elements precede a bound.
        begin, end = (
            np.clip(-((self.starts(axis, size) - bound) // self.dilations[axis]), 0, self.kernel[axis])
            for bound in (-low, size + high)
        )
        return np.maximum(end - begin, 1)

    def pad(self, emit: Emitter, x: ImportedValue, fill: float = 0) -> ImportedValue:
        """Pad images."""
        return emit.pad(x, (0, *self.low, 0), (0, *self.high, 0), emit.scalar(fill, x))

    def max_pool(self, emit: Emitter, x: ImportedValue) -> ImportedValue:
        """Emit the maximum of each window; the padding does not exceed any element."""
        return emit(dl.MaxPoolOp, self.pad(emit, x, lowest(x)), **self.properties)

    def sum_pool(self, emit: Emitter, x: ImportedValue) -> ImportedValue:
        return emit(dl.SumPoolOp, self.pad(emit, x), **self.properties)

    def average_pool(
        self, emit: Emitter, x: ImportedValue, where: str, low: Sequence[int] | None = None, high: Sequence[int] | None = None
    ) -> ImportedValue:
        """Emit the average of each window, including `low` and `high` of its padding, by default none.

        The elements along an axis of symbolic size are counted at run time. Raises ModelError, which names `where`, for an axis
        that is too long.
        """
        counts = emit.scalar(1, x)
        for axis, size in enumerate(x.shape[1:-1]):
            counted = low[axis] if low else 0, high[axis] if high else 0
            counts = emit(dl.MulOp, counts, self._axis_counts(emit, x, where, axis, size, *counted))
        return emit(dl.MulOp, self.sum_pool(emit, x), emit(dl.DivOp, emit.scalar(1, x), counts))

    def _axis_counts(
        self, emit: Emitter, x: ImportedValue, where: str, axis: int, size: Size, low: int, high: int
    ) -> ImportedValue:
        if (low, high) == (self.low[axis], self.high[axis]):
            return emit.scalar(self.kernel[axis], x)
        rank = len(self.kernel)
        if isinstance(size, int):
            require_axis_length(where, size + self.low[axis] + self.high[axis])
            counts = self.counts(axis, size, low, high)
            return emit.constant(counts.reshape(-1, *(1,) * (rank - axis)), numpy_dtype(x.element_type))
        ones = emit.full(1, [1, *(low + size + high if a == axis else 1 for a in range(rank)), 1], x)
        uncounted = replace(self, low=tuple(p - low for p in self.low), high=tuple(p - high for p in self.high))
        # A window that contains only padding has an average of 0.
        return emit(dl.MaximumOp, uncounted.along(axis).sum_pool(emit, ones), emit.scalar(1, x))


def lowest(x: ImportedValue) -> float:
    """Return the lowest number of the element type of `x`."""
    return -np.inf if is_float(x.element_type) else int(np.iinfo(numpy_dtype(x.element_type)).min)


def same_padding(size: Size, extent: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after an axis that gives ⌈size / stride⌉ windows, the larger part after it."""
    total = max(extent - (_remainder(size, stride) or stride), 0)
    return total // 2, total - total // 2


def ceil_mode_padding(size: Size, extent: int, stride: int, low: int, high: int) -> int:
    """Return the padding after an axis with which the number of windows is rounded up, at least `high`.

    The last window starts inside the operand or its leading padding.
    """
    rest = _remainder(size, stride)
    return max(high, min(high + (extent - low - high - rest) % stride, extent - 1 - (rest + low - 1) % stride))


def _remainder(size: Size, divisor: int) -> int:
    """Return `size % divisor`. Raises UndecidableError if that depends on the values of symbols."""
    return next(r for r in range(divisor) if are_equal(size % divisor, r))

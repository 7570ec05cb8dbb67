"""Destinations: the tensors that results are written to, and windows of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.ir import Attribute, SSAValue
from dlc.passes.linalg.linalg_builder import LinalgBuilder
from dlc.shapes.dims import Size


class DestinationTensor:
    """A tensor that is written window by window: `value` is its latest SSA value, created empty on first use."""

    def __init__(self, sizes: Sequence[Size], element: Attribute, value: SSAValue | None = None) -> None:
        self.sizes = tuple(sizes)
        self.element = element
        self.is_written = False
        self._value = value

    def value(self, builder: LinalgBuilder) -> SSAValue:
        if self._value is None:
            self._value = builder.empty(self.sizes, self.element)
        return self._value

    def update(self, value: SSAValue) -> None:
        self._value = value
        self.is_written = True


@dataclass(frozen=True)
class Destination:
    """A strided window of a tensor.

    Attributes:
        root: The tensor that contains the window.
        offsets: The index of the first element along each axis.
        sizes: The number of elements along each axis.
        steps: The stride between elements along each axis.
    """

    root: DestinationTensor
    offsets: tuple[Size, ...]
    sizes: tuple[Size, ...]
    steps: tuple[Size, ...]

    @staticmethod
    def full(root: DestinationTensor) -> Destination:
        return Destination(root, (0,) * len(root.sizes), root.sizes, (1,) * len(root.sizes))

    @property
    def is_full(self) -> bool:
        return self.sizes == self.root.sizes

    def window(self, offsets: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size] | None = None) -> Destination:
        """Return a window of this window."""
        starts = tuple(a + k * b for a, b, k in zip(self.offsets, offsets, self.steps, strict=True))
        strides = tuple(k * m for k, m in zip(self.steps, steps or (1,) * len(sizes), strict=True))
        return Destination(self.root, starts, tuple(sizes), strides)

    def write(self, builder: LinalgBuilder, compute: Callable[[SSAValue], SSAValue]) -> SSAValue:
        """Store the result of `compute` on the window's tensor, and return it."""
        base = self.root.value(builder)
        result = compute(builder.extract_slice(base, self.offsets, self.sizes, self.steps))
        self.root.update(result if self.is_full else builder.insert_slice(result, base, self.offsets, self.steps))
        return result

    def read(self, builder: LinalgBuilder) -> SSAValue:
        """Return the current contents of the window."""
        return builder.extract_slice(self.root.value(builder), self.offsets, self.sizes, self.steps)


# (offsets, sizes, steps) of a window.
SliceParameters: TypeAlias = tuple[list[Size], list[Size], list[Size]]


def padding_windows(sizes: Sequence[Size], low: Sequence[int], high: Sequence[int]) -> list[SliceParameters]:
    """Return disjoint windows that cover the padding of a tensor of `sizes`.

    A window at axis a spans the interior of the axes before a, and all of those after it. Padding of one element on both
    sides, as for a 3×3 convolution, is a single window whose step skips the interior.
    """
    windows: list[SliceParameters] = []
    for axis, size in enumerate(sizes):
        sides: list[tuple[Size, int, Size]] = [(0, low[axis], 1), (size - high[axis], high[axis], 1)]
        if low[axis] == high[axis] == 1:
            sides = [(0, 2, size - 1)]
        for start, width, step in sides:
            if width:
                interior = [s - a - b for s, a, b in zip(sizes[:axis], low[:axis], high[:axis], strict=True)]
                trailing = sizes[axis + 1 :]
                steps = [*(1 for _ in interior), step, *(1 for _ in trailing)]
                windows.append(([*low[:axis], start, *(0 for _ in trailing)], [*interior, width, *trailing], steps))
    return [window for window in windows if 0 not in window[1]]

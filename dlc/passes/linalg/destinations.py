"""Destinations: the tensors that results are written to, and windows of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.dims import Size
from dlc.ir import Attribute, SSAValue
from dlc.passes.linalg.write import Writer


class Root:
    """A whole tensor that is written piece by piece: `value` is its newest state, made empty when first asked for."""

    def __init__(self, sizes: Sequence[Size], element: Attribute, value: SSAValue | None = None) -> None:
        self.sizes = tuple(sizes)
        self.element = element
        self.written = False
        self._value = value

    def value(self, write: Writer) -> SSAValue:
        if self._value is None:
            self._value = write.empty(self.sizes, self.element)
        return self._value

    def update(self, value: SSAValue) -> None:
        self._value = value
        self.written = True


@dataclass(frozen=True)
class Destination:
    """A window of a root: along each axis every `steps`-th element, `sizes` of them from `offsets` on."""

    root: Root
    offsets: tuple[Size, ...]
    sizes: tuple[Size, ...]
    steps: tuple[Size, ...]

    @staticmethod
    def whole(root: Root) -> Destination:
        return Destination(root, (0,) * len(root.sizes), root.sizes, (1,) * len(root.sizes))

    @property
    def is_whole(self) -> bool:
        return self.sizes == self.root.sizes

    def window(self, offsets: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size] | None = None) -> Destination:
        """A window of this window."""
        starts = tuple(a + k * b for a, b, k in zip(self.offsets, offsets, self.steps, strict=True))
        strides = tuple(k * m for k, m in zip(self.steps, steps or (1,) * len(sizes), strict=True))
        return Destination(self.root, starts, tuple(sizes), strides)

    def write(self, write: Writer, compute: Callable[[SSAValue], SSAValue]) -> SSAValue:
        """Stores what `compute` makes of the window's tensor, and returns that."""
        base = self.root.value(write)
        result = compute(write.extract_slice(base, self.offsets, self.sizes, self.steps))
        self.root.update(result if self.is_whole else write.insert_slice(result, base, self.offsets, self.steps))
        return result

    def read(self, write: Writer) -> SSAValue:
        """What the window holds now."""
        return write.extract_slice(self.root.value(write), self.offsets, self.sizes, self.steps)


# Offsets, sizes and steps of a window.
Box: TypeAlias = tuple[list[Size], list[Size], list[Size]]


def borders(sizes: Sequence[Size], low: Sequence[int], high: Sequence[int]) -> list[Box]:
    """The windows around the interior of a padded tensor of `sizes`, none overlapping.

    A window at axis a spans the interior of the axes before a and all of those after it. One element on both sides, which
    is what a 3×3 convolution wants, is one window that steps over the interior.
    """
    boxes: list[Box] = []
    for axis, size in enumerate(sizes):
        sides: list[tuple[Size, int, Size]] = [(0, low[axis], 1), (size - high[axis], high[axis], 1)]
        if low[axis] == high[axis] == 1:
            sides = [(0, 2, size - 1)]
        for start, width, step in sides:
            if width:
                interior = [s - a - b for s, a, b in zip(sizes[:axis], low[:axis], high[:axis], strict=True)]
                rest = sizes[axis + 1 :]
                steps = [*(1 for _ in interior), step, *(1 for _ in rest)]
                boxes.append(([*low[:axis], start, *(0 for _ in rest)], [*interior, width, *rest], steps))
    return [box for box in boxes if 0 not in box[1]]

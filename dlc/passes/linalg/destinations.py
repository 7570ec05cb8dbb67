"""Destinations: the tensors that results are written to, and windows of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.ir import Attribute, SSAValue
from dlc.passes.linalg.write import Writer


class Root:
    """A whole tensor that is written piece by piece: `value` is its newest state, made empty when first asked for."""

    def __init__(self, sizes: Sequence[int], element: Attribute, value: SSAValue | None = None) -> None:
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
    """A window of a root with unit strides."""

    root: Root
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def whole(root: Root) -> Destination:
        return Destination(root, (0,) * len(root.sizes), root.sizes)

    @property
    def is_whole(self) -> bool:
        return self.sizes == self.root.sizes

    def window(self, offsets: Sequence[int], sizes: Sequence[int]) -> Destination:
        """A window of this window."""
        return Destination(self.root, tuple(a + b for a, b in zip(self.offsets, offsets, strict=True)), tuple(sizes))

    def write(self, write: Writer, compute: Callable[[SSAValue], SSAValue]) -> SSAValue:
        """Stores what `compute` makes of the window's tensor, and returns that."""
        base = self.root.value(write)
        result = compute(write.extract_slice(base, self.offsets, self.sizes))
        self.root.update(result if self.is_whole else write.insert_slice(result, base, self.offsets))
        return result

    def read(self, write: Writer) -> SSAValue:
        """What the window holds now."""
        return write.extract_slice(self.root.value(write), self.offsets, self.sizes)


def borders(sizes: Sequence[int], low: Sequence[int], high: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """(offsets, sizes) of the boxes around the interior of a padded tensor of `sizes`, none overlapping.

    The box on a side of axis a spans the interior of the axes before a and all of those after it.
    """
    boxes: list[tuple[list[int], list[int]]] = []
    for axis in range(len(sizes)):
        for start, width in ((0, low[axis]), (sizes[axis] - high[axis], high[axis])):
            if width:
                offsets = [*low[:axis], start, *(0 for _ in sizes[axis + 1 :])]
                interior = [s - a - b for s, a, b in zip(sizes[:axis], low[:axis], high[:axis], strict=True)]
                boxes.append((offsets, [*interior, width, *sizes[axis + 1 :]]))
    return [box for box in boxes if 0 not in box[1]]

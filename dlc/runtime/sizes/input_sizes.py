"""Solve for the symbols in input shapes."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.arrays import TensorInfo
from dlc.dims import Dim, is_symbol
from dlc.runtime.sizes.size_code import size_function


class InputSizes:
    """The symbols of a program's inputs, ordered by the first axis whose size is the symbol."""

    def __init__(self, inputs: Sequence[TensorInfo]) -> None:
        axes: dict[str, tuple[int, int]] = {}
        for k, info in enumerate(inputs):
            for axis, size in enumerate(info.shape):
                if is_symbol(size):
                    axes.setdefault(str(size), (k, axis))
        self.symbols = tuple(axes)
        self._axes = tuple(axes.values())
        is_solvable = all(Dim.lift(size).symbols() <= axes.keys() for info in inputs for size in info.shape)
        self._shapes = size_function(self.symbols, [info.shape for info in inputs]) if is_solvable else None

    def of(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the values of the symbols for these shapes. Raises IndexError for an input with too few axes."""
        return tuple([shapes[k][axis] for k, axis in self._axes])

    def fit(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return whether shapes match the inputs; False also if a symbol is not the size of any axis."""
        try:
            return self._shapes is not None and self._shapes(*self.of(shapes)) == tuple(shapes)
        except (IndexError, ZeroDivisionError):
            return False

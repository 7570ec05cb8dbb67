"""Solve for the symbols in input shapes."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.arrays import TensorInfo
from dlc.dims import Dim, solvable_axes
from dlc.runtime.sizes.size_code import size_function


class InputSizes:
    """The symbols of a program's inputs, ordered by the first axis that determines the symbol (see `solvable_axes`)."""

    def __init__(self, inputs: Sequence[TensorInfo]) -> None:
        axes = solvable_axes([info.shape for info in inputs])
        self.symbols = tuple(axes)
        self._axes = tuple((k, axis) for k, axis, _ in axes.values())
        # None if each size is a symbol.
        linear = tuple(linear for *_, linear in axes.values())
        self._linear = linear if any((size.factor, size.offset) != (1, 0) for size in linear) else None
        is_solvable = all(Dim.lift(size).symbols() <= axes.keys() for info in inputs for size in info.shape)
        self._shapes = size_function(self.symbols, [info.shape for info in inputs]) if is_solvable else None

    def of(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the values of the symbols for these shapes. Raises IndexError for an input with too few axes."""
        sizes = tuple([shapes[k][axis] for k, axis in self._axes])
        if self._linear is None:
            return sizes
        return tuple([linear.solve(size) for linear, size in zip(self._linear, sizes, strict=True)])

    def fit(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return whether shapes match the inputs; False also if a symbol is not the size of any axis."""
        try:
            return self._shapes is not None and self._shapes(*self.of(shapes)) == tuple(shapes)
        except (IndexError, ZeroDivisionError):
            return False

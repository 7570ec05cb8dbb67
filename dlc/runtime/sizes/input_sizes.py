"""Open sizes of inputs: the shapes that a call gives say what the symbols are."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.arrays import TensorInfo
from dlc.dims import Dim, is_symbol
from dlc.runtime.sizes.size_function import size_function


class InputSizes:
    """The symbols of a program's inputs, in the order in which they stand somewhere by themselves."""

    def __init__(self, inputs: Sequence[TensorInfo]) -> None:
        places: dict[str, tuple[int, int]] = {}
        for k, info in enumerate(inputs):
            for axis, size in enumerate(info.shape):
                if is_symbol(size):
                    places.setdefault(str(size), (k, axis))
        self.symbols = tuple(places)
        self._places = tuple(places.values())
        solved = all(Dim.lift(size).symbols() <= places.keys() for info in inputs for size in info.shape)
        self._shapes = size_function(self.symbols, [info.shape for info in inputs]) if solved else None

    def of(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """What the symbols are in shapes. Raises IndexError for an input that lacks an axis."""
        return tuple([shapes[k][axis] for k, axis in self._places])

    def fit(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether shapes are those of the inputs; False too if a symbol is nowhere by itself."""
        try:
            return self._shapes is not None and self._shapes(*self.of(shapes)) == tuple(shapes)
        except (IndexError, ZeroDivisionError):
            return False

"""Models that can be imported only for a call: a variant for each set of values, or of shapes, that they are called with.

    y = ReduceSum(x, axes)      called with axes = [0]: y = ReduceSum(x, [0]), a program of x alone, compiled and kept

What shapes hang on (axes, a number of repeats, a condition) is taken from the call: the values of these inputs are constants
of the variant, which has the other inputs. Where no values are asked for, shapes are. A variant may be a model of this kind
itself: an input that picks a branch is known, and the branch asks for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.errors import UnsupportedError
from dlc.frontend.onnx import OpenInputsError
from dlc.runtime.model import Model

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
Values: TypeAlias = Mapping[str, NDArray[Any]]

# What was compiled for the values or shapes that were not asked for longest makes room for new ones.
_MOST_VARIANTS = 128


class Variants:
    """The model `name` for calls: `compile` makes it for the shapes of its inputs, or for the values of some."""

    def __init__(self, name: str, found: OpenInputsError, compile: Callable[[Shapes, Values], Model]) -> None:
        self.name = name
        self.inputs = found.inputs
        self.values = found.values
        self._by_value = [info for info in found.inputs if info.name in found.values]
        self._compile = compile
        self._variant = lru_cache(_MOST_VARIANTS)(self._of_values if found.values else self._of_shapes)

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The outputs for inputs that fit `inputs`."""
        given = {info.name: array for info, array in zip(self.inputs, arrays, strict=True)}
        if self.values:
            key = tuple(np.asarray(given[info.name]).tobytes() for info in self._by_value)
        else:
            key = tuple(array.shape for array in arrays)
        variant = self._variant(key)
        return variant.run([given[info.name] for info in variant.inputs])

    def save(self, path: Path) -> None:
        """Raises UnsupportedError: what a call needs is compiled when it comes."""
        names = ", ".join(f"'{name}'" for name in self.values)
        of, option = (f"the values of {names}", "input_values") if names else ("the shapes of its inputs", "input_shapes")
        raise UnsupportedError(
            f"{self.name}: it is compiled for {of} when it is called, and cannot be saved before; give them with {option}"
        )

    def _of_values(self, key: tuple[bytes, ...]) -> Model:
        return self._compile({}, {info.name: _value(info, data) for info, data in zip(self._by_value, key, strict=True)})

    def _of_shapes(self, key: tuple[tuple[int, ...], ...]) -> Model:
        return self._compile({info.name: shape for info, shape in zip(self.inputs, key, strict=True)}, {})


def _value(info: TensorInfo, data: bytes) -> NDArray[Any]:
    # Only an input whose sizes are known is asked for its value.
    return np.frombuffer(data, info.dtype).reshape([int(size) for size in info.shape])

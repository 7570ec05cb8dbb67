"""What a converter reads of the inputs of one operator: values, and numbers that have to be known when a file is read."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, normalized_axes
from dlc.dims import Dim, Size, never_negative
from dlc.errors import ModelError
from dlc.frontend.decided import Element, elements_of, may_be_sizes
from dlc.frontend.emit import Emitter, Value
from dlc.frontend.problems import NodeProblem


class Operands:
    """The inputs of the operator at `place`: `node[0]` is the first one; `names` are what messages call them."""

    def __init__(self, place: str, inputs: Sequence[Value | None], names: Sequence[str], emit: Emitter) -> None:
        self.place, self.inputs, self.emit = place, inputs, emit
        self._names = names

    def __getitem__(self, k: int) -> Value:
        """A required input."""
        value = self.get(k)
        if value is None:
            raise ModelError(f"{self.place}: input {k} is missing; it has {len(self.inputs)}")
        return value

    def get(self, k: int) -> Value | None:
        """An optional input."""
        return self.inputs[k] if k < len(self.inputs) else None

    def known(self, k: int, what: str) -> Array:
        """The elements of an input that has to be known when the file is read."""
        value = self[k]
        if value.known is None:
            raise NodeProblem(
                "value",
                f"its {what} (input '{self._names[k]}') is computed from data or from sizes that are not known; "
                "give the model's input shapes, or make it a constant",
                (value,),
            )
        return value.known

    def sizes(self, k: int, what: str) -> tuple[Size, ...]:
        """The sizes, axes or bounds that a known integer input holds."""
        return tuple(s if isinstance(s, Dim) else int(s) for s in self.known(k, what).reshape(-1))

    def elements(self, k: int, what: str) -> tuple[Size | Element, ...]:
        """The sizes, axes or bounds that an integer input holds, or what computes them when the program runs."""
        value = self[k]
        if value.ssa is None or not may_be_sizes(value.ssa):
            return self.sizes(k, what)
        return tuple(elements_of(value.ssa).flat)

    def decided(self, k: int, what: str) -> tuple[Size, ...]:
        """The sizes that an integer input holds; those that are computed from data the program finds when it runs.

        One below 0 is an error of the call.
        """
        emit, found = self.emit, self.elements(k, what)
        for element in found:
            if isinstance(element, Element) or (emit.is_by_data(element) and not never_negative(element)):
                number = emit.number(element)
                least = emit(dl.GreaterEqualOp, number, emit.scalar(0, number))
                emit.require(least, f"{self.place}: a size of {{}} in its {what}", number)
        return tuple(map(emit.as_size, found))

    def integers_of(self, k: int, what: str) -> tuple[int, ...]:
        """The elements of a known integer input without symbolic sizes."""
        entries = self.sizes(k, what)
        if any(isinstance(e, Dim) for e in entries):
            raise NodeProblem("value", f"its {what} {list(entries)} depends on sizes that are not known; give the input shapes")
        return tuple(e for e in entries if isinstance(e, int))

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        return normalized_axes(None, [axis], rank)[0]

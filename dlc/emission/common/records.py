"""The records from which a language emits code: a loop, and a tile that is read or written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.registers import MemrefAddress, Stride
from dlc.ir import SSAValue

Values = Sequence[SSAValue]


class LoopRecord(NamedTuple):
    """`for induction in range(low, high, step)` with loop-carried values.

    Each carried value has an initial value, an argument of the body and a result.

    Attributes:
        visit: Emits the body; returns the values that the next iteration receives.
        unrolled: Whether the loop should be unrolled.
        rolled: Whether the loop must not be unrolled.
    """

    low: LinearExpression
    high: LinearExpression
    step: LinearExpression
    induction: SSAValue
    visit: Callable[[], Values]
    initial_values: Values = ()
    body_arguments: Values = ()
    results: Values = ()
    unrolled: bool = False
    rolled: bool = False

    @property
    def has_static_bounds(self) -> bool:
        """Return whether both bounds are constants."""
        return not (self.low.terms or self.high.terms)

    @property
    def num_iterations(self) -> int | None:
        """The number of iterations, or None if it is not static."""
        extent = self.high.plus(self.low, -1)
        if extent.terms or self.step.terms:
            return None
        return max(0, -(-extent.constant // self.step.constant))


class TileAccess(NamedTuple):
    """One tile in memory.

    Attributes:
        pointer: A pointer from which the tile is addressed.
        displacement: The distance of the first element from `pointer`, in elements.
        align: The alignment in bytes of `pointer` plus the terms of `displacement`.
        strides: The stride of each vector dimension, in elements.
        offset: The distance of the first element from the view's base, in elements.
        bounds: For each vector dimension, (index of the first element, size) if the access may exceed the buffer, else None.
    """

    view: MemrefAddress
    pointer: str
    displacement: LinearExpression
    align: int
    strides: tuple[Stride, ...]
    offset: LinearExpression
    bounds: tuple[tuple[LinearExpression, LinearExpression] | None, ...]

    @property
    def stride(self) -> Stride:
        """The distance between neighboring elements of a row, in elements."""
        return self.strides[-1] if self.strides else 1

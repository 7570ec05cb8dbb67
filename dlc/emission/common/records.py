"""The records from which a language emits code: a loop, and a tile that is read or written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlc.dims import UndecidableError
from dlc.emission.common.linear_expression import LinearExpression
from dlc.emission.common.registers import MemrefAddress, Stride
from dlc.ir import SSAValue

Values = Sequence[SSAValue]


class LoopRecord(NamedTuple):
    """`for induction in range(low, high, step)` with loop-carried values.

    Each carried value has an initial value, an argument of the body and a result. `visit` emits the body and returns the values
    that the next iteration receives. `unrolled`: the iterations should be unrolled; `rolled`: the loop must not be unrolled.
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


class TileAccess(NamedTuple):
    """One tile in memory: the address of its first element, and for each vector dimension the stride and the bounds check."""

    view: MemrefAddress
    pointer: str
    displacement: LinearExpression  # elements from `pointer` on
    align: int  # alignment in bytes of pointer + the terms of the displacement
    strides: tuple[Stride, ...]
    offset: LinearExpression  # elements from the view's base on
    # (index of the first element, size of the dimension) if the access may exceed the buffer, else None
    bounds: tuple[tuple[LinearExpression, int] | None, ...]

    @property
    def stride(self) -> int:
        """The distance between neighbouring elements of a row, in elements."""
        stride = self.strides[-1] if self.strides else 1
        if isinstance(stride, LinearExpression):
            raise UndecidableError("the stride between the lanes of a vector is known only at run time")
        return stride

"""What a language is asked to write of control flow and memory: a loop, a tile that is read or written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlc.dims import UndecidableError
from dlc.emission.visit.linear import Linear
from dlc.emission.visit.registers import Stride, View
from dlc.ir import SSAValue

Values = Sequence[SSAValue]


class Loop(NamedTuple):
    """`for induction in range(low, high, step)`.

    It carries values: as they enter it (`before`), as arguments of its body (`inside`), and as its results (`after`).
    `visit` writes the body and returns what it carries on. `unrolled`: its iterations are best written one by one;
    `rolled`: it stays a loop.
    """

    low: Linear
    high: Linear
    step: Linear
    induction: SSAValue
    visit: Callable[[], Values]
    before: Values = ()
    inside: Values = ()
    after: Values = ()
    unrolled: bool = False
    rolled: bool = False

    @property
    def is_known(self) -> bool:
        """Whether its ends are constants."""
        return not (self.low.terms or self.high.terms)


class Access(NamedTuple):
    """One tile in memory: where it starts, and per vector dimension the stride and the test whether an index is inside."""

    view: View
    pointer: str
    form: Linear  # elements from `pointer` on
    align: int  # of pointer + form's terms, in bytes
    strides: tuple[Stride, ...]
    whole: Linear  # elements from the view's base on
    # (index of the first element, size of the dimension) where the access may leave the buffer
    bounds: tuple[tuple[Linear, int] | None, ...]

    @property
    def stride(self) -> int:
        """From one element of a row to the next."""
        stride = self.strides[-1] if self.strides else 1
        if isinstance(stride, Linear):
            raise UndecidableError("how far the lanes of a vector lie apart is known only when the kernel runs")
        return stride

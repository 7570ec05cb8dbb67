"""Bounds checks at run time: each point of a grid records the first index that is out of bounds."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.ir import arith, i64
from dlc.passes.kernel_builder import Buffer
from dlc.passes.kernel_values import KernelValue, select


class PointChecks:
    """The checks of one grid, with a result i64[points…, 2]: the number of the message that applies, or -1, and the index."""

    def __init__(self, buffer: Buffer) -> None:
        self.messages: list[str] = []
        self._builder = buffer.builder
        self._buffer = buffer
        self._point: Sequence[KernelValue] = ()

    def enter(self, point: Sequence[KernelValue]) -> None:
        """Emit the initial state at the start of a point."""
        self._point = point
        self._buffer[(*point, 0)] = self._integer(-1)
        self._buffer[(*point, 1)] = self._integer(0)

    def clamp(self, index: KernelValue, last: KernelValue, message: str) -> KernelValue:
        """Return an index, or 0 if it is outside of 0 … last; record `message`, with `{}` for the index, in this case."""
        is_inside = self._builder.op(arith.CmpiOp(index.ssa, last.ssa, "ule"))
        number = self._buffer[(*self._point, 0)]
        is_first = number < 0
        is_recorded = (is_inside ^ self._builder.constant(1, is_inside.type)) & is_first
        with self._builder.when(is_recorded):
            self._buffer[(*self._point, 0)] = self._integer(len(self.messages))
            self._buffer[(*self._point, 1)] = index.as_integer(i64)
        self.messages.append(message)
        return select(is_inside, index, self._builder.index(0))

    def _integer(self, value: int) -> KernelValue:
        return self._builder.constant(value, i64)

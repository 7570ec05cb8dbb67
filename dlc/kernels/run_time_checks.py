"""Bounds checks at run time: each point of a grid records the first index that is out of bounds."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.ir import Block, arith, i64
from dlc.passes.library_kernels.builder import Buffer, KernelBuilder
from dlc.passes.library_kernels.values import KernelValue, select
from dlc.passes.types import memref_type


class PointChecks:
    """The checks of one grid, with a result i64[points…, 2]: the number of the message that applies, or -1, and the index."""

    def __init__(self, builder: KernelBuilder, body: Block, sizes: Sequence[int]) -> None:
        self.shape = (*sizes, 2)
        self.messages: list[str] = []
        self._builder = builder
        argument = body.insert_arg(memref_type(i64, self.shape), len(body.args))
        argument.name_hint = "check"
        self._buffer = Buffer(builder, argument)
        self._point: Sequence[KernelValue] = ()

    def enter(self, point: Sequence[KernelValue]) -> None:
        """Emit the initial state at the start of a point."""
        self._point = point
        self._buffer[(*point, 0)] = self._integer(-1)
        self._buffer[(*point, 1)] = self._integer(0)

    def clamp(self, index: KernelValue, last: int, message: str) -> KernelValue:
        """Return an index, or 0 if it is outside of 0 … last; record `message`, with `{}` for the index, in this case."""
        is_inside = self._builder.op(arith.CmpiOp(index.ssa, self._builder.index(last).ssa, "ule"))
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

"""When the buffers of a host program are alive."""

from __future__ import annotations

from collections.abc import Mapping

from dlc.dialects import host
from dlc.dialects.dl.programs.ranges import representative
from dlc.dialects.entry import buffer_bytes
from dlc.dims import Range
from dlc.ir import Block, Operation, SSAValue, memref
from dlc.passes.host.arena import Lifetime


class Steps:
    """The ops of the host program, numbered in order, those of bodies among them."""

    def __init__(self, block: Block) -> None:
        # The first and the last number of each op and of what is in it.
        self.span: dict[Operation, tuple[int, int]] = {}
        self._number(block)

    def _number(self, block: Block) -> None:
        for op in block.ops:
            first = len(self.span)
            self.span[op] = first, first
            for region in op.regions:
                self._number(region.block)
            self.span[op] = first, len(self.span) - 1

    def lifetime(self, buffer: Operation, value: SSAValue, ranges: Mapping[str, Range]) -> Lifetime:
        """When the buffer that an op makes is alive, and its size: a representative one where it comes with a call."""
        touched: list[int] = []
        names: set[SSAValue] = {value}
        pending: list[SSAValue] = [value]
        while pending:
            for use in pending.pop().uses:
                others = set(_other_names(use.operation, use.index)) - names
                names |= others
                pending += others
                touched += self._touched(use.operation, buffer.parent)
        own = self.span[buffer][0]
        size = representative(buffer_bytes(value), ranges)
        return Lifetime(size, min(touched, default=own), max(touched, default=own))

    def _touched(self, op: Operation, home: Block | None) -> tuple[int, ...]:
        """When an op touches a buffer that is allocated in the block `home`: throughout a loop that is inside of that."""
        if isinstance(op, memref.ReinterpretCastOp | host.ViewOp):
            return ()
        span = self.span[op] if isinstance(op, host.LoopOp | host.WhileOp) else self.span[op][:1]
        outer = op.parent_op()
        while outer is not None and outer in self.span and op.parent is not home:
            if isinstance(outer, host.LoopOp | host.WhileOp):
                span = (*span, *self.span[outer])
            op, outer = outer, outer.parent_op()
        return span


def _other_names(op: Operation, operand: int) -> list[SSAValue]:
    """What else a buffer is called that is an operand of this op."""
    match op:
        case memref.ReinterpretCastOp() | host.ViewOp():
            return [op.result]
        case host.LoopOp():
            # Results of a loop that runs are what it yields.
            runs = isinstance(op.turns, int) and op.turns > 0
            return [op.blocks[0].args[operand], *(() if runs else op.results[operand : operand + 1])]
        case host.WhileOp():
            return [op.blocks[0].args[operand - 1], op.results[operand - 1]] if operand else []
        case host.YieldOp():
            loop = op.parent_op()
            first = isinstance(loop, host.WhileOp)
            if not isinstance(loop, host.LoopOp | host.WhileOp) or operand < first:
                return []
            return [loop.blocks[0].args[operand - first], loop.results[operand - first]]
        case _:
            return []

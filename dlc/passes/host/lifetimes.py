"""Lifetimes of the buffers of a host program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from dlc.dialects import host
from dlc.dialects.dl.programs.size_ranges import representative
from dlc.dialects.entry import buffer_bytes
from dlc.ir import Block, IntegerAttr, Operation, SSAValue, memref
from dlc.passes.host.arena import Lifetime
from dlc.shapes.ranges import SizeRange


class OpOrder:
    """The program order of the ops of the host program, including nested ones."""

    def __init__(self, block: Block) -> None:
        # The first and last step of each op, including nested ops.
        self.span: dict[Operation, tuple[int, int]] = {}
        self._record_spans(block)

    def _record_spans(self, block: Block) -> None:
        for op in block.ops:
            first = len(self.span)
            self.span[op] = first, first
            for region in op.regions:
                self._record_spans(region.block)
            self.span[op] = first, len(self.span) - 1

    def section(self, buffer: memref.AllocOp) -> tuple[host.ParallelOp, int] | None:
        """Return the section that has all accesses of a buffer; None if there is none."""
        found = set[tuple[Operation, int] | None]()
        pending: list[SSAValue] = [buffer.memref]
        while pending:
            for use in pending.pop().uses:
                op, outer = use.operation, use.operation.parent_op()
                if isinstance(op, memref.ReinterpretCastOp | host.ViewOp):
                    pending.append(op.result)
                else:
                    found.add((outer, host.section_of(op)) if isinstance(outer, host.ParallelOp) else None)
        section = found.pop() if len(found) == 1 else None
        return cast("tuple[host.ParallelOp, int] | None", section)

    def lifetime(self, buffer: Operation, value: SSAValue, ranges: Mapping[str, SizeRange]) -> Lifetime:
        """Return the lifetime of the buffer that an op creates, with a representative size if it is symbolic."""
        steps, allocation_step = self.steps(buffer, value), self.span[buffer][0]
        size = representative(buffer_bytes(value), ranges)
        return Lifetime(size, min(steps, default=allocation_step), max(steps, default=allocation_step))

    def steps(self, buffer: Operation, value: SSAValue) -> list[int]:
        """Return the steps that access a buffer."""
        steps: list[int] = []
        known_aliases: set[SSAValue] = {value}
        pending: list[SSAValue] = [value]
        while pending:
            for use in pending.pop().uses:
                new_aliases = set(aliases(use.operation, use.index)) - known_aliases
                known_aliases |= new_aliases
                pending += new_aliases
                steps += self._access_steps(use.operation, buffer.parent)
        return steps

    def _access_steps(self, op: Operation, allocating_block: Block | None) -> tuple[int, ...]:
        """Return the steps in which an op accesses a buffer.

        For an op of a loop, or of sections that run concurrently, that is nested in the allocating block, these are all steps
        of the outer op.
        """
        if isinstance(op, memref.ReinterpretCastOp | host.ViewOp):
            return ()
        span = self.span[op] if isinstance(op, host.LoopOp | host.WhileOp) else self.span[op][:1]
        outer = op.parent_op()
        while outer is not None and outer in self.span and op.parent is not allocating_block:
            if isinstance(outer, host.LoopOp | host.WhileOp | host.ParallelOp):
                span = (*span, *self.span[outer])
            op, outer = outer, outer.parent_op()
        return span


def aliases(op: Operation, operand: int) -> list[SSAValue]:
    """Return the values that alias an operand's buffer because of this op."""
    match op:
        case memref.ReinterpretCastOp() | host.ViewOp():
            return [op.result]
        case host.LoopOp():
            # The results of a loop that runs at least once alias its yields, else its operands too.
            runs_at_least_once = isinstance(op.trip_count, int) and op.trip_count > 0
            return [op.blocks[0].args[operand], *(() if runs_at_least_once else op.results[operand : operand + 1])]
        case host.WhileOp():
            return [op.blocks[0].args[operand - 1], op.results[operand - 1]] if operand else []
        case host.YieldOp():
            loop = op.parent_op()
            num_conditions = isinstance(loop, host.WhileOp)
            if not isinstance(loop, host.LoopOp | host.WhileOp) or operand < num_conditions:
                return []
            return [loop.blocks[0].args[operand - num_conditions], loop.results[operand - num_conditions]]
        case _:
            return []


def accessed_buffers(op: Operation) -> Sequence[SSAValue]:
    """Return the buffers that one op reads or writes."""
    return op.operands


def written_buffers(op: Operation) -> Sequence[SSAValue]:
    """Return the buffers that one op writes; for an op with unknown effects, all that it accesses."""
    match op:
        case host.LaunchOp():
            count = op.attributes.get(host.NUM_OUTPUTS)
            return op.operands[-count.value.data :] if isinstance(count, IntegerAttr) else op.operands
        case memref.CopyOp():
            return [op.destination]
        case host.ComputeOp():
            return op.result_buffers
        case _:
            return op.operands

"""`plan-arena`: every buffer of the host program gets its place in one arena."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import host
from dlc.ir import Block, Context, ModuleOp, ModulePass, Operation, SSAValue, memref
from dlc.passes.host.arena import ALIGNMENT, Lifetime, place


@dataclass(frozen=True)
class PlanArenaPass(ModulePass):
    """Gives `memref.alloc` in the entry an offset; buffers that are not alive at the same time may share memory.

        %a = memref.alloc() : memref<64xf32>          %a = host.arena 0 : memref<64xf32>
        host.launch @k(%x, %a)                   →    host.launch @k(%x, %a)
        %b = memref.alloc() : memref<64xf32>          %b = host.arena 256 : memref<64xf32>
        host.launch @k(%a, %b)                        host.launch @k(%a, %b)

    Requires `bufferize-host`. A buffer is alive from the first launch to the last one that has it or a view of it among
    its arguments; one from outside a loop that is used inside is alive throughout the loop, also where it goes by the name of
    an argument of the body or of a result. Offsets are multiples of `alignment` bytes.
    """

    name = "plan-arena"
    alignment: int = ALIGNMENT

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        steps = _Steps(host.entry_of(op).body.block)
        buffers = [o for o in steps.span if isinstance(o, memref.AllocOp)]
        lifetimes = [steps.lifetime(buffer) for buffer in buffers]
        for buffer, offset in zip(buffers, place(lifetimes, self.alignment), strict=True):
            arena = host.ArenaOp(offset, buffer.memref.type)
            arena.location = buffer.location
            arena.result.name_hint = buffer.memref.name_hint
            block = buffer.parent
            assert block is not None
            block.insert_op_before(arena, buffer)
            buffer.memref.replace_all_uses_with(arena.result)
            buffer.detach()
            buffer.erase()


class _Steps:
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

    def lifetime(self, buffer: memref.AllocOp) -> Lifetime:
        touched: list[int] = []
        names: set[SSAValue] = {buffer.memref}
        pending: list[SSAValue] = [buffer.memref]
        while pending:
            for use in pending.pop().uses:
                others = set(_other_names(use.operation, use.index)) - names
                names |= others
                pending += others
                touched += self._touched(use.operation, buffer.parent)
        own = self.span[buffer][0]
        return Lifetime(host.buffer_bytes(buffer.memref.type), min(touched, default=own), max(touched, default=own))

    def _touched(self, op: Operation, home: Block | None) -> tuple[int, ...]:
        """When an op touches a buffer that is allocated in the block `home`: throughout a loop that is inside of that."""
        if isinstance(op, memref.ReinterpretCastOp):
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
        case memref.ReinterpretCastOp():
            return [op.result]
        case host.LoopOp():
            return [op.blocks[0].args[operand], *op.results[operand : operand + 1]]
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

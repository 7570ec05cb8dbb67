"""`plan-arena`: every buffer of the host program gets its place in one arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects import host
from dlc.dialects.dl.ranges import ranges_of, representative
from dlc.dims import Range
from dlc.ir import Context, IntegerAttr, ModuleOp, ModulePass, Operation, SSAValue, i64, memref
from dlc.passes.host.arena import ALIGNMENT, Lifetime, place, share


@dataclass(frozen=True)
class PlanArenaPass(ModulePass):
    """Gives `memref.alloc` in the entry an offset; buffers that are not alive at the same time may share memory.

        %a = memref.alloc() : memref<64xf32>          %a = host.arena 0 : memref<64xf32>
        host.launch @k(%x, %a)                   →    host.launch @k(%x, %a)
        %b = memref.alloc() : memref<64xf32>          %b = host.arena 256 : memref<64xf32>
        host.launch @k(%a, %b)                        host.launch @k(%a, %b)

    Requires `bufferize-host`. A buffer is alive from the first launch to the last one that has it or a view of it among
    its arguments. Offsets are multiples of `alignment` bytes. A `host.buffer` gets a slot instead: which memory that is
    follows from the sizes of a call.
    """

    name = "plan-arena"
    alignment: int = ALIGNMENT

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        block = host.entry_of(op).body.block
        steps = {o: i for i, o in enumerate(block.ops)}
        _plan_slots([o for o in steps if isinstance(o, host.BufferOp)], steps, ranges_of(op))
        buffers = [o for o in steps if isinstance(o, memref.AllocOp)]
        lifetimes = [_lifetime(buffer.memref, steps, {}) for buffer in buffers]
        for buffer, offset in zip(buffers, place(lifetimes, self.alignment), strict=True):
            arena = host.ArenaOp(offset, buffer.memref.type)
            arena.location = buffer.location
            arena.result.name_hint = buffer.memref.name_hint
            block.insert_op_before(arena, buffer)
            buffer.memref.replace_all_uses_with(arena.result)
            buffer.detach()
            buffer.erase()


def _plan_slots(buffers: Sequence[host.BufferOp], steps: Mapping[Operation, int], ranges: Mapping[str, Range]) -> None:
    """Gives each buffer a slot: lifetimes alone decide who may share one, representative sizes who does."""
    for buffer, slot in zip(buffers, share([_lifetime(b.result, steps, ranges) for b in buffers]), strict=True):
        buffer.slot = IntegerAttr(slot, i64)


def _lifetime(buffer: SSAValue, steps: Mapping[Operation, int], ranges: Mapping[str, Range]) -> Lifetime:
    assert isinstance(buffer.owner, Operation)
    touched = [steps[buffer.owner]]
    views: list[SSAValue] = [buffer]
    while views:
        for use in views.pop().uses:
            if isinstance(use.operation, memref.ReinterpretCastOp | host.ViewOp):
                views.append(use.operation.result)
            else:
                touched.append(steps[use.operation])
    first = min(touched[1:], default=touched[0])
    return Lifetime(representative(host.buffer_bytes(buffer), ranges), first, max(touched))

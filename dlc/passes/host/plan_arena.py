"""`plan-arena`: every buffer of the host program gets its place in one arena."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import host
from dlc.ir import Context, ModuleOp, ModulePass, Operation, SSAValue, memref
from dlc.passes.host.arena import ALIGNMENT, Lifetime, place


@dataclass(frozen=True)
class PlanArenaPass(ModulePass):
    """Gives `memref.alloc` in the entry an offset; buffers that are not alive at the same time may share memory.

        %a = memref.alloc() : memref<64xf32>          %a = host.arena 0 : memref<64xf32>
        host.launch @k(%x, %a)                   →    host.launch @k(%x, %a)
        %b = memref.alloc() : memref<64xf32>          %b = host.arena 256 : memref<64xf32>
        host.launch @k(%a, %b)                        host.launch @k(%a, %b)

    Requires `bufferize-host`. A buffer is alive from the first launch to the last one that has it or a view of it among
    its arguments. Offsets are multiples of `alignment` bytes.
    """

    name = "plan-arena"
    alignment: int = ALIGNMENT

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        block = host.entry_of(op).body.block
        steps = {o: i for i, o in enumerate(block.ops)}
        buffers = [o for o in steps if isinstance(o, memref.AllocOp)]
        lifetimes = [_lifetime(buffer, steps) for buffer in buffers]
        for buffer, offset in zip(buffers, place(lifetimes, self.alignment), strict=True):
            arena = host.ArenaOp(offset, buffer.memref.type)
            arena.location = buffer.location
            arena.result.name_hint = buffer.memref.name_hint
            block.insert_op_before(arena, buffer)
            buffer.memref.replace_all_uses_with(arena.result)
            buffer.detach()
            buffer.erase()


def _lifetime(buffer: memref.AllocOp, steps: dict[Operation, int]) -> Lifetime:
    touched = [steps[buffer]]
    views: list[SSAValue] = [buffer.memref]
    while views:
        for use in views.pop().uses:
            if isinstance(use.operation, memref.ReinterpretCastOp):
                views.append(use.operation.result)
            else:
                touched.append(steps[use.operation])
    first = min(touched[1:], default=touched[0])
    return Lifetime(host.buffer_bytes(buffer.memref.type), first, max(touched))

"""`plan-arena`: every buffer of the host program gets its place in one arena."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlc.dialects import host
from dlc.dialects.dl.programs.ranges import ranges_of
from dlc.dialects.entry import entry_of
from dlc.dims import Dim
from dlc.ir import Context, IntegerAttr, ModuleOp, ModulePass, Operation, i64, memref
from dlc.passes.host.arena import ALIGNMENT, place, share
from dlc.passes.host.lifetimes import Steps


@dataclass(frozen=True)
class PlanArenaPass(ModulePass):
    """Gives `memref.alloc` in the entry an offset; buffers that are not alive at the same time may share memory.

        %a = memref.alloc() : memref<64xf32>          %a = host.arena 0 : memref<64xf32>
        host.launch @k(%x, %a)                   →    host.launch @k(%x, %a)
        %b = memref.alloc() : memref<64xf32>          %b = host.arena 256 : memref<64xf32>
        host.launch @k(%a, %b)                        host.launch @k(%a, %b)

    Requires `bufferize-host`. A buffer is alive from the first launch to the last one that has it or a view of it among
    its arguments; one from outside a loop that is used inside is alive throughout the loop, also where it goes by the name of
    an argument of the body or of a result. Offsets are multiples of `alignment` bytes. A `host.buffer` gets a region instead:
    which memory that is follows from the sizes of a call. Where data decides sizes, regions of buffers whose sizes are known
    earlier come first, so that they stay where they are when the next size is decided.
    """

    name = "plan-arena"
    alignment: int = ALIGNMENT

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        steps, ranges, first = Steps(entry_of(op).body.block), ranges_of(op), 0
        open_ = [o for o in steps.span if isinstance(o, host.BufferOp)]
        for buffers in _by_decision(steps.span, open_):
            regions = share([steps.lifetime(b, b.result, ranges) for b in buffers])
            for buffer, region in zip(buffers, regions, strict=True):
                buffer.region = IntegerAttr(first + region, i64)
            first += max(regions) + 1
        buffers = [o for o in steps.span if isinstance(o, memref.AllocOp)]
        lifetimes = [steps.lifetime(buffer, buffer.memref, ranges) for buffer in buffers]
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


def _by_decision(ops: Iterable[Operation], buffers: Sequence[host.BufferOp]) -> list[list[host.BufferOp]]:
    """Buffers by the last decision that their sizes hang on, those that hang on none first."""
    order = {symbol: k for k, symbol in enumerate((symbol for op in ops for symbol in host.decided_by(op)), 1)}
    groups: dict[int, list[host.BufferOp]] = {}
    for buffer in buffers:
        symbols = {symbol for size in buffer.sizes.sizes for symbol in Dim.lift(size).symbols()}
        groups.setdefault(max((order.get(symbol, 0) for symbol in symbols), default=0), []).append(buffer)
    return [groups[k] for k in sorted(groups)]

"""`plan-arena`: assigns every buffer of the host program an offset in one arena."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects import host
from dlc.dialects.dl.programs.size_ranges import size_ranges
from dlc.dialects.entry import entry_of
from dlc.dims import Dim
from dlc.ir import Context, IntegerAttr, ModuleOp, ModulePass, Operation, i64, memref
from dlc.passes.host.arena import assign_offsets, assign_slots
from dlc.passes.host.lifetimes import OpOrder


@dataclass(frozen=True)
class PlanArenaPass(ModulePass):
    """Gives `memref.alloc` in the entry an offset; buffers that are not live at the same time may share memory.

        %a = memref.alloc() : memref<64xf32>          %a = host.arena 0 : memref<64xf32>
        host.launch @k(%x, %a)                   →    host.launch @k(%x, %a)
        %b = memref.alloc() : memref<64xf32>          %b = host.arena 256 : memref<64xf32>
        host.launch @k(%a, %b)                        host.launch @k(%a, %b)

    Requires `bufferize-host`. A buffer is live from the first launch to the last one that has it or a view of it as an
    argument. A buffer that is allocated outside a loop and used inside is live throughout the loop, also if it is used
    through block arguments and results. Offsets are multiples of `alignment` bytes. A `host.buffer` of symbolic size gets a
    region instead, whose address is computed at run time from the sizes of the call. With data-dependent sizes, regions of
    buffers whose sizes are bound earlier come first, so that they keep their addresses when the next size is bound.
    """

    name = "plan-arena"
    alignment: int = ALIGNMENT_BYTES

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        order, ranges, first_region = OpOrder(entry_of(op).body.block), size_ranges(op), 0
        dynamic_buffers = [o for o in order.span if isinstance(o, host.BufferOp)]
        for buffers in _group_by_last_size(order.span, dynamic_buffers):
            regions = assign_slots([order.lifetime(b, b.result, ranges) for b in buffers])
            for buffer, region in zip(buffers, regions, strict=True):
                buffer.region = IntegerAttr(first_region + region, i64)
            first_region += max(regions) + 1
        buffers = [o for o in order.span if isinstance(o, memref.AllocOp)]
        lifetimes = [order.lifetime(buffer, buffer.memref, ranges) for buffer in buffers]
        for buffer, offset in zip(buffers, assign_offsets(lifetimes, self.alignment), strict=True):
            arena = host.ArenaOp(offset, buffer.memref.type)
            arena.location = buffer.location
            arena.result.name_hint = buffer.memref.name_hint
            block = buffer.parent
            assert block is not None
            block.insert_op_before(arena, buffer)
            buffer.memref.replace_all_uses_with(arena.result)
            buffer.detach()
            buffer.erase()


def _group_by_last_size(ops: Iterable[Operation], buffers: Sequence[host.BufferOp]) -> list[list[host.BufferOp]]:
    """Group buffers by the last data-dependent size that they depend on; buffers that depend on none come first."""
    order = {symbol: k for k, symbol in enumerate((symbol for op in ops for symbol in host.sizes_bound_by(op)), 1)}
    groups: dict[int, list[host.BufferOp]] = {}
    for buffer in buffers:
        symbols = {symbol for size in buffer.sizes.sizes for symbol in Dim.lift(size).symbols()}
        groups.setdefault(max((order.get(symbol, 0) for symbol in symbols), default=0), []).append(buffer)
    return [groups[k] for k in sorted(groups)]

"""`plan-arena`: assigns every buffer of the host program an offset in one arena."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from dlc.arrays import ALIGNMENT_BYTES
from dlc.dialects import host
from dlc.dialects.dl.distributed.collectives import NONBLOCKING
from dlc.dialects.dl.programs.size_ranges import size_ranges
from dlc.dialects.entry import buffer_bytes, entry_of
from dlc.errors import CompileError
from dlc.ir import Block, Context, IntegerAttr, ModuleOp, ModulePass, Operation, SSAValue, erase_op, i64, memref
from dlc.passes.host.arena import Lifetime, assign_offsets, assign_slots
from dlc.passes.host.lifetimes import OpOrder, accessed_buffers, written_buffers
from dlc.shapes.dims import Dim
from dlc.shapes.ranges import SizeRange


@dataclass(frozen=True)
class PlanArenaPass(ModulePass):
    """Gives `memref.alloc` in the entry an offset; buffers that are not live at the same time may share memory.

        %a = memref.alloc() : memref<64xf32>          %a = host.arena 0 : memref<64xf32>
        host.launch @k(%x, %a)                   →    host.launch @k(%x, %a)
        %b = memref.alloc() : memref<64xf32>          %b = host.arena 256 : memref<64xf32>
        host.launch @k(%a, %b)                        host.launch @k(%a, %b)

    Requires `bufferize-host`, and `form-sections` if launches run concurrently. A buffer is live from the first launch to the
    last one that has it or a view of it as an argument. A buffer that is allocated outside a loop and used inside is live
    throughout the loop, also if it is used through block arguments and results. A buffer that several sections of a
    `host.parallel` use is live throughout it; the buffers of a single section share a part of the arena that no other section
    uses. Offsets are multiples of `alignment` bytes. A `host.buffer` of symbolic size gets a region instead, whose address is
    computed at run time from the sizes of the call. With data-dependent sizes, regions of buffers whose sizes are bound earlier
    come first, so that they keep their addresses when the next size is bound.
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
        for buffer, offset in self._offsets(order, buffers, ranges).items():
            arena = host.ArenaOp(offset, buffer.memref.type)
            arena.location = buffer.location
            arena.result.name_hint = buffer.memref.name_hint
            block = buffer.parent
            assert block is not None
            block.insert_op_before(arena, buffer)
            buffer.memref.replace_all_uses_with(arena.result)
            erase_op(buffer)
        for parallel in order.span:
            if isinstance(parallel, host.ParallelOp):
                require_disjoint_sections(parallel)
        for block in {o.parent for o in order.span if isinstance(o, host.ComputeOp) and o.function.data == "wait"}:
            assert block is not None
            verify_pending_collectives(block)
        for launch in order.span:
            launch.attributes.pop(host.NUM_OUTPUTS, None)

    def _offsets(
        self, order: OpOrder, buffers: Sequence[memref.AllocOp], ranges: Mapping[str, SizeRange]
    ) -> dict[memref.AllocOp, int]:
        """Return the offsets of buffers. The buffers of one section share a part of the arena, which no other section uses."""
        shared, sections = list[memref.AllocOp](), dict[tuple[host.ParallelOp, int], list[memref.AllocOp]]()
        for buffer in buffers:
            section = order.section(buffer)
            (shared if section is None else sections.setdefault(section, [])).append(buffer)
        lifetimes = [order.lifetime(buffer, buffer.memref, ranges) for buffer in shared]
        parts: list[tuple[list[memref.AllocOp], list[int]]] = []
        for (parallel, _), inner in sections.items():
            inner_lifetimes = [_lifetime_in_section(order, buffer) for buffer in inner]
            offsets = assign_offsets(inner_lifetimes, self.alignment)
            end = max(offset + lifetime.bytes for offset, lifetime in zip(offsets, inner_lifetimes, strict=True))
            parts.append((inner, offsets))
            lifetimes.append(Lifetime(end, *order.span[parallel]))
        starts = assign_offsets(lifetimes, self.alignment)
        placed = dict(zip(shared, starts, strict=False))
        for (inner, offsets), start in zip(parts, starts[len(shared) :], strict=True):
            placed |= {buffer: start + offset for buffer, offset in zip(inner, offsets, strict=True)}
        return {buffer: placed[buffer] for buffer in buffers}


def _lifetime_in_section(order: OpOrder, buffer: memref.AllocOp) -> Lifetime:
    """Return the lifetime of a buffer within the only section that uses it."""
    steps, pending = list[int](), [buffer.memref]
    while pending:
        for use in pending.pop().uses:
            if isinstance(use.operation, memref.ReinterpretCastOp | host.ViewOp):
                pending.append(use.operation.result)
            else:
                steps.append(order.span[use.operation][0])
    return Lifetime(int(buffer_bytes(buffer.memref)), min(steps), max(steps))


def require_disjoint_sections(parallel: host.ParallelOp) -> None:
    """Prove that different buffers of different sections are different memory.

    `form-sections` proves that sections do not conflict in shared buffers. Raises CompileError otherwise: a bug of dlc.
    """
    seen: dict[SSAValue, tuple[int, _Span]] = {}
    for number, section in enumerate(parallel.sections):
        for value in dict.fromkeys(_root(operand) for launch in section for operand in launch.operands):
            span = _span(value)
            for other, (its_section, its_span) in seen.items():
                if other is not value and its_section != number and _overlap(span, its_span):
                    raise CompileError(
                        f"{parallel.location}: sections {its_section} and {number} share memory: {span}, {its_span}"
                    )
            seen.setdefault(value, (number, span))


def verify_pending_collectives(block: Block) -> None:
    """Prove that no op accesses the result of a collective between its start and its wait, or writes its operand.

    `overlap-collectives` places the waits, and lifetimes include them. Raises CompileError otherwise: a bug of dlc.
    """
    pending: dict[int, tuple[list[_Span], list[_Span]]] = {}
    for op in block.ops:
        request: int = json.loads(op.settings.data).get("request", -1) if isinstance(op, host.ComputeOp) else -1
        if isinstance(op, host.ComputeOp) and op.function.data == "wait":
            del pending[request]
        if isinstance(op, _MEMORY_OPS):
            continue
        accessed, written = (
            [_span(_root(value)) for inner in op.walk() for value in values(inner)]
            for values in (accessed_buffers, written_buffers)
        )
        if any(_conflict(accessed, written, *spans) for spans in pending.values()):
            raise CompileError(f"{op.location}: {op.name} accesses the memory of a collective that has started")
        if isinstance(op, host.ComputeOp) and op.function.data in NONBLOCKING and request >= 0:
            pending[request] = accessed, written
    if pending:
        raise CompileError(f"{len(pending)} collectives without a wait")


def _conflict(
    accessed: Sequence[_Span], written: Sequence[_Span], others: Sequence[_Span], written_others: Sequence[_Span]
) -> bool:
    pairs = (*product(written, others), *product(accessed, written_others))
    return any(_overlap(a, b) for a, b in pairs)


_MEMORY_OPS = host.ArenaOp | host.BufferOp | host.WeightOp | host.ViewOp | memref.ReinterpretCastOp
# A buffer's memory: its slot and byte range; the whole slot for a region.
_Span = tuple[object, int, int]


def _span(root: SSAValue) -> _Span:
    match root.owner:
        case host.ArenaOp() as op:
            return "arena", op.offset.value.data, op.offset.value.data + int(buffer_bytes(root))
        case host.BufferOp() as op:
            return op.region.value.data, 0, 1
        case _:
            return root, 0, 1


def _overlap(a: _Span, b: _Span) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def _root(value: SSAValue) -> SSAValue:
    while isinstance(value.owner, memref.ReinterpretCastOp | host.ViewOp):
        value = value.owner.source
    return value


def _group_by_last_size(ops: Iterable[Operation], buffers: Sequence[host.BufferOp]) -> list[list[host.BufferOp]]:
    """Group buffers by the last data-dependent size that they depend on; buffers that depend on none come first."""
    order = {symbol: k for k, symbol in enumerate((symbol for op in ops for symbol in host.sizes_bound_by(op)), 1)}
    groups: dict[int, list[host.BufferOp]] = {}
    for buffer in buffers:
        symbols = {symbol for size in buffer.sizes.sizes for symbol in Dim.lift(size).symbols()}
        groups.setdefault(max((order.get(symbol, 0) for symbol in symbols), default=0), []).append(buffer)
    return [groups[k] for k in sorted(groups)]

"""Merge collectives into buckets: one message instead of several of the same kind.

    %a = dl.all_reduce %x; %b = dl.all_reduce %y    →    %c = dl.concat %x, %y (flat); %r = dl.all_reduce %c; slices of %r

A collective joins a bucket with the same mesh axes, combinator and element type, unless one depends on the other, directly or
through other buckets. Ops that depend on a bucket are moved after it. Buckets are small: beyond `_MAX_BUCKET_BYTES` the latency
that a message saves is less than the time of its copies, and a bucket of gathered parameters needs memory for all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dlc.dialects import dl
from dlc.dialects.dl.base import PropertyValue, element_type_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.programs.control import captured_values
from dlc.ir import Block, ModuleOp, Operation, erase_op
from dlc.passes.dl.rewriting import program_blocks
from dlc.passes.sharding.canonicalize_collectives import as_rows, from_rows
from dlc.shapes.dims import Size, is_static

_Mergeable: TypeAlias = "dl.AllReduceOp | dl.ReduceScatterOp | dl.AllGatherOp"
# At 1.5 GB/s a message of this size takes 140 times the latency of 20 µs.
_MAX_BUCKET_BYTES = 4 << 20


@dataclass(eq=False)
class _Bucket:
    """Collectives that become one, and the buckets of which they need results."""

    ops: list[_Mergeable]
    needed: set[_Bucket] = field(default_factory=set["_Bucket"])

    def has_space(self, op: _Mergeable) -> bool:
        """Return whether an op fits into the bucket."""
        return sum(map(_message_bytes, (*self.ops, op))) <= _MAX_BUCKET_BYTES

    def needs(self, other: _Bucket) -> bool:
        """Return whether an op of this bucket depends on another bucket, directly or transitively."""
        pending: list[_Bucket] = [self]
        seen: set[_Bucket] = {self}
        while pending:
            bucket = pending.pop()
            if other in bucket.needed:
                return True
            pending.extend(bucket.needed.difference(seen))
            seen.update(bucket.needed)
        return False


def merge_collectives(module: ModuleOp) -> None:
    """Merge the collectives of each block."""
    for block in program_blocks(module):
        buckets = [bucket for bucket in _assign(block) if len(bucket.ops) > 1]
        for bucket in buckets:
            _merge(block, bucket.ops)
        if buckets:
            _sort_by_dependencies(block)


def _assign(block: Block) -> list[_Bucket]:
    """Assign each collective to the first bucket of its kind that it may join."""
    by_kind: dict[Hashable, list[_Bucket]] = {}
    # The buckets on which each op depends.
    needed: dict[Operation, set[_Bucket]] = {}
    for op in block.ops:
        own = set[_Bucket]().union(*(needed[source] for source in _sources(op, block)))
        needed[op] = own
        if not isinstance(op, dl.AllReduceOp | dl.ReduceScatterOp | dl.AllGatherOp) or not is_static(shape_of(op.x)):
            continue
        candidates = by_kind.setdefault(_kind(op), [])
        open_buckets = (b for b in candidates if b.has_space(op))
        bucket = next((b for b in open_buckets if b not in own and not any(other.needs(b) for other in own)), None)
        if bucket is None:
            bucket = _Bucket([])
            candidates.append(bucket)
        bucket.ops.append(op)
        bucket.needed |= own
        needed[op] = {bucket}
    return [bucket for buckets in by_kind.values() for bucket in buckets]


def _message_bytes(op: _Mergeable) -> int:
    """Return the size of the operand or the result, whichever is larger."""
    return op.operand_bytes * (op.ranks if isinstance(op, dl.AllGatherOp) else 1)


def _kind(op: _Mergeable) -> Hashable:
    combine = op.combine if isinstance(op, dl.AllReduceOp | dl.ReduceScatterOp) else None
    return type(op), op.axes, combine, element_type_of(op.x)


def _sources(op: Operation, block: Block) -> Sequence[Operation]:
    """Return the ops of a block whose results an op reads, including those that its bodies capture."""
    values = [*op.operands, *(v for region in op.regions for v in captured_values(region.block))]
    return [v.owner for v in values if isinstance(v.owner, Operation) and v.owner.parent is block]


def _merge(block: Block, ops: Sequence[_Mergeable]) -> None:
    """Replace collectives by one on the concatenation of their operands; ops are sorted later."""
    first, build = ops[0], DlBuilder(block.last_op, ops[0].location) if block.last_op is not None else DlBuilder(block)
    ranks = first.ranks
    group: dict[str, PropertyValue] = {"axes": first.axes, "group_size": ranks}
    rows = [as_rows(build, op) for op in ops]
    joined = build(dl.ConcatOp, *rows, axis=1)
    match first:
        case dl.AllReduceOp():
            merged = build(dl.AllReduceOp, joined, **group, combine=first.combine)
        case dl.ReduceScatterOp():
            merged = build(dl.ReduceScatterOp, joined, **group, axis=0, combine=first.combine)
        case dl.AllGatherOp():
            merged = build(dl.AllGatherOp, joined, **group, axis=0)
    start: Size = 0
    for op, row in zip(ops, rows, strict=True):
        size, count = shape_of(row)[1], shape_of(merged)[0]
        part = build(dl.SliceOp, merged, starts=(0, start), limits=(count, start + size), strides=(1, 1))
        op.result.replace_all_uses_with(from_rows(build, op, part))
        start = start + size
    for op in ops:
        erase_op(op)


def _sort_by_dependencies(block: Block) -> None:
    """Sort ops topologically; otherwise keep their order."""
    ops = list(block.ops)
    ordered: dict[Operation, None] = {}
    for op in ops:
        pending = [(op, False)]
        while pending:
            current, sources_done = pending.pop()
            if sources_done:
                ordered[current] = None
            elif current not in ordered:
                pending.append((current, True))
                pending += [(source, False) for source in reversed(_sources(current, block)) if source not in ordered]
    for op in ops:
        op.detach()
    for op in ordered:
        block.add_op(op)

"""Faster iteration over the ops of blocks and regions: two generators instead of three per enclosing op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from xdsl.ir import Block, BlockOps, Operation
from xdsl.ir.core import RegionBlocks

from dlc.xdsl_patches.type_checks import store_as_field


def _ops(self: BlockOps) -> Iterator[Operation]:
    """Yield the ops of a block; the successor is read first, so that the op may be removed by the consumer."""
    next_op: Any = self.block.first_op
    while next_op is not None:
        op, next_op = next_op, next_op.next_op
        yield op


def _blocks(self: Any) -> Iterator[Block]:
    """Yield the blocks of a region; the successor of a block is read when the next one is requested."""
    block = self._region._first_block
    while block is not None:
        yield block
        block = block._next_block


def _nested(op: Operation) -> Iterator[Operation]:
    for region in op.regions:
        for block in region.blocks:
            next_op: Any = block.first_op
            while next_op is not None:
                inner, next_op = next_op, next_op.next_op
                yield inner


def _walk(self: Operation, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
    if reverse or region_first:
        yield from _xdsl_walk(self, reverse=reverse, region_first=region_first)
        return
    yield self
    pending = [_nested(self)]
    while pending:
        for op in pending[-1]:
            yield op
            if op.regions:
                pending.append(_nested(op))
                break
        else:
            pending.pop()


_xdsl_walk = Operation.walk
# Properties that become fields, with the names of the fields that they read.
_FIELDS = (
    (Operation, "next_op", "_next_op"),
    (Operation, "prev_op", "_prev_op"),
    (Block, "first_op", "_first_op"),
    (Block, "last_op", "_last_op"),
)


def patch_op_iteration() -> None:
    """Iterate over ops and blocks by reading the next pointers directly."""
    for kind, name, field in _FIELDS:
        store_as_field(kind, name, field)
    cast(Any, BlockOps).__iter__, cast(Any, RegionBlocks).__iter__ = _ops, _blocks
    Operation.walk = _walk

"""Walks over what is in an op: two generators, not three for each op around."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from xdsl.ir import Block, BlockOps, Operation
from xdsl.ir.core import RegionBlocks

from dlc.xdsl_changes.classes import keep_as


def _ops(self: BlockOps) -> Iterator[Operation]:
    """The ops of a block; the one after an op is known before the op is handed out, which may go then."""
    following: Any = self.block.first_op
    while following is not None:
        op, following = following, following.next_op
        yield op


def _blocks(self: Any) -> Iterator[Block]:
    """The blocks of a region; the one after a block is known once the next is asked for."""
    block = self._region._first_block
    while block is not None:
        yield block
        block = block._next_block


def _nested(op: Operation) -> Iterator[Operation]:
    for region in op.regions:
        for block in region.blocks:
            following: Any = block.first_op
            while following is not None:
                inner, following = following, following.next_op
                yield inner


def _walk(self: Operation, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
    if reverse or region_first:
        yield from _walk_any(self, reverse=reverse, region_first=region_first)
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


_walk_any = Operation.walk
# The names that are asked for, and those of the fields.
_FIELDS = (
    (Operation, "next_op", "_next_op"),
    (Operation, "prev_op", "_prev_op"),
    (Block, "first_op", "_first_op"),
    (Block, "last_op", "_last_op"),
)


def change_walks() -> None:
    """From op to op and from block to block without asking for more than the next one."""
    for kind, name, field in _FIELDS:
        keep_as(kind, name, field)
    cast(Any, BlockOps).__iter__, cast(Any, RegionBlocks).__iter__ = _ops, _blocks
    Operation.walk = _walk

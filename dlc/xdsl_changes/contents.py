"""Blocks that know what is in them: how many ops of each class.

It is counted as ops come and go, so that nobody walks over all ops to see that what is looked for is not there. A walk over
50,000 of them waits for memory at each one: 25 ms for a question that most programs answer with no.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from xdsl.ir import Attribute, Block, BlockOps, Operation
from xdsl.irdl import IRDLOperation

Op = TypeVar("Op", bound=Operation)


def kinds_in(block: Block) -> Mapping[type[Operation], int]:
    """The classes of the ops that are in a block, not in their regions, and how many there are of each."""
    return cast(Any, block)._kinds


def holds_any(block: Block, kinds: tuple[type, ...]) -> bool:
    """Whether an op of one of some classes is in a block, not in a region of its ops."""
    return any([issubclass(kind, kinds) for kind in kinds_in(block)])


class Derived(dict[type, bool]):
    """Whether classes derive from one of some, found once for each: of an op it takes a fourth of `isinstance`."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        super().__init__()
        self._kinds = kinds

    def __missing__(self, kind: type) -> bool:
        found = self[kind] = issubclass(kind, self._kinds)
        return found


def contains(op: Operation, *kinds: type[Operation]) -> bool:
    """Whether an op is of one of some classes, or one that is in it."""
    return next(all_of(op, *kinds), None) is not None


def ops_of(block: Block, *kinds: type[Op]) -> list[Op]:
    """The ops of some classes that are in a block, not in regions of its ops."""
    return [op for op in block.ops if isinstance(op, kinds)] if holds_any(block, kinds) else []


def all_of(op: Operation, *kinds: type[Op]) -> Iterator[Op]:
    """An op and those that are in it, as far as they are of some classes, in the order of `walk`."""
    if isinstance(op, kinds):
        yield op
    asked = Derived(kinds)
    for block in [block for region in op.regions for block in region.blocks]:
        if holds_any(block, kinds):
            for inner in block.ops:
                if inner.regions:
                    yield from all_of(inner, *kinds)
                elif asked[inner.__class__]:
                    yield cast(Op, inner)
        else:
            for inner in with_regions(block):
                yield from all_of(inner, *kinds)


def op_count(op: Operation) -> int:
    """How many ops an op is, with those in it."""
    count, around = 1, [op]
    while around:
        for region in around.pop().regions:
            for block in region.blocks:
                count += sum(kinds_in(block).values())
                around += with_regions(block)
    return count


def with_regions(block: Block) -> list[Operation]:
    """The ops of a block that have regions."""
    for kind in kinds_in(block):
        if _may_have_regions(kind):
            return [op for op in block.ops if op.regions]
    return []


@cache
def _may_have_regions(kind: type[Operation]) -> bool:
    return not issubclass(kind, IRDLOperation) or bool(kind.get_irdl_definition().regions)


def _begin(self: Any, ops: Iterable[Operation] = (), *, arg_types: Iterable[Attribute] = ()) -> None:
    self._kinds = {}
    _begin_any(self, ops, arg_types=arg_types)


def _attach(self: Any, op: Any) -> None:
    if op.parent is not None or op.regions:
        _attach_any(self, op)
    op.parent = self
    kinds, kind = self._kinds, op.__class__
    kinds[kind] = kinds.get(kind, 0) + 1


def _detach(self: Any, op: Any) -> Any:
    if op.parent is not self:
        raise ValueError("Cannot detach operation from a different block.")
    before, after = op.prev_op, op.next_op
    if before is None:
        self.first_op = after
    else:
        before.next_op = after
    if after is None:
        self.last_op = before
    else:
        after.prev_op = before
    op.parent = op.prev_op = op.next_op = None
    kinds, kind = self._kinds, op.__class__
    if kinds[kind] == 1:
        del kinds[kind]
    else:
        kinds[kind] -= 1
    return op


def _insert_before(self: Any, new: Any, place: Any) -> None:
    if place.parent is not self:
        raise ValueError("Can't insert operation before operation not in current block")
    self._attach_op(new)
    before = place.prev_op
    new.prev_op, new.next_op, place.prev_op = before, place, new
    if before is None:
        self.first_op = new
    else:
        before.next_op = new


def _split(self: Any, first: Operation, *, arg_types: Iterable[Attribute] = ()) -> Block:
    second = _split_any(self, first, arg_types=arg_types)
    for block in (self, second):
        block._kinds = dict(Counter([op.__class__ for op in block.ops]))
    return second


def _length(self: BlockOps) -> int:
    return sum(kinds_in(self.block).values())


_begin_any: Any = Block.__init__
_attach_any: Any = Block._attach_op  # pyright: ignore[reportPrivateUsage]
_split_any: Any = Block.split_before


def change_contents() -> None:
    """Blocks count what is put into them and taken out, each in one go; to be called before there are any."""
    cast(Any, Block).__init__, cast(Any, Block)._attach_op = _begin, _attach
    cast(Any, Block).detach_op, cast(Any, Block).split_before = _detach, _split
    cast(Any, Block).insert_op_before = _insert_before
    cast(Any, BlockOps).__len__ = _length

"""Blocks count their ops by class.

The counts are updated when ops are inserted or removed, so that no walk over all ops is needed to see that a block has none of
a class. A walk over 50,000 ops costs a cache miss per op: 25 ms for a query whose answer is usually no.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from xdsl.ir import Attribute, Block, BlockOps, Operation
from xdsl.irdl import IRDLOperation

Op = TypeVar("Op", bound=Operation)


def op_classes_in(block: Block) -> Mapping[type[Operation], int]:
    """Return the classes of the ops in a block, excluding nested regions, with the number of ops of each."""
    return cast(Any, block)._op_counts


def contains_any(block: Block, kinds: tuple[type, ...]) -> bool:
    """Return whether an op of one of `kinds` is in a block, excluding nested regions."""
    return any([issubclass(kind, kinds) for kind in op_classes_in(block)])


class SubclassTest(dict[type, bool]):
    """A memoized map from classes to whether they derive from one of `kinds`, four times as fast as `isinstance`."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        super().__init__()
        self._kinds = kinds

    def __missing__(self, kind: type) -> bool:
        is_subclass = self[kind] = issubclass(kind, self._kinds)
        return is_subclass


def contains(op: Operation, *kinds: type[Operation]) -> bool:
    """Return whether an op, or an op nested in it, is of one of `kinds`."""
    return next(walk_ops(op, *kinds), None) is not None


def ops_of(block: Block, *kinds: type[Op]) -> list[Op]:
    """Return the ops of `kinds` in a block, excluding nested regions."""
    return [op for op in block.ops if isinstance(op, kinds)] if contains_any(block, kinds) else []


def walk_ops(op: Operation, *kinds: type[Op]) -> Iterator[Op]:
    """Yield an op and the ops nested in it that are of `kinds`, in the order of `walk`."""
    if isinstance(op, kinds):
        yield op
    is_requested = SubclassTest(kinds)
    for block in [block for region in op.regions for block in region.blocks]:
        if contains_any(block, kinds):
            for inner in block.ops:
                if inner.regions:
                    yield from walk_ops(inner, *kinds)
                elif is_requested[inner.__class__]:
                    yield cast(Op, inner)
        else:
            for inner in ops_with_regions(block):
                yield from walk_ops(inner, *kinds)


def op_count(op: Operation) -> int:
    """Return the number of ops, including nested ones."""
    count, parents = 1, [op]
    while parents:
        for region in parents.pop().regions:
            for block in region.blocks:
                count += sum(op_classes_in(block).values())
                parents += ops_with_regions(block)
    return count


def ops_with_regions(block: Block) -> list[Operation]:
    """Return the ops of a block that have regions."""
    for kind in op_classes_in(block):
        if _may_have_regions(kind):
            return [op for op in block.ops if op.regions]
    return []


@cache
def _may_have_regions(kind: type[Operation]) -> bool:
    return not issubclass(kind, IRDLOperation) or bool(kind.get_irdl_definition().regions)


def _initialize_block(self: Any, ops: Iterable[Operation] = (), *, arg_types: Iterable[Attribute] = ()) -> None:
    self._op_counts = {}
    _xdsl_init(self, ops, arg_types=arg_types)


def _attach(self: Any, op: Any) -> None:
    if op.parent is not None or op.regions:
        _xdsl_attach(self, op)
    op.parent = self
    counts, op_class = self._op_counts, op.__class__
    counts[op_class] = counts.get(op_class, 0) + 1


def _detach(self: Any, op: Any) -> Any:
    if op.parent is not self:
        raise ValueError("Cannot detach operation from a different block.")
    previous_op, next_op = op.prev_op, op.next_op
    if previous_op is None:
        self.first_op = next_op
    else:
        previous_op.next_op = next_op
    if next_op is None:
        self.last_op = previous_op
    else:
        next_op.prev_op = previous_op
    op.parent = op.prev_op = op.next_op = None
    counts, op_class = self._op_counts, op.__class__
    if counts[op_class] == 1:
        del counts[op_class]
    else:
        counts[op_class] -= 1
    return op


def _insert_before(self: Any, new: Any, existing: Any) -> None:
    if existing.parent is not self:
        raise ValueError("Can't insert operation before operation not in current block")
    self._attach_op(new)
    previous_op = existing.prev_op
    new.prev_op, new.next_op, existing.prev_op = previous_op, existing, new
    if previous_op is None:
        self.first_op = new
    else:
        previous_op.next_op = new


def _split(self: Any, first: Operation, *, arg_types: Iterable[Attribute] = ()) -> Block:
    second = _xdsl_split(self, first, arg_types=arg_types)
    for block in (self, second):
        block._op_counts = dict(Counter([op.__class__ for op in block.ops]))
    return second


def _length(self: BlockOps) -> int:
    return sum(op_classes_in(self.block).values())


_xdsl_init: Any = Block.__init__
_xdsl_attach: Any = Block._attach_op  # pyright: ignore[reportPrivateUsage]
_xdsl_split: Any = Block.split_before


def patch_op_counts() -> None:
    """Make blocks count the ops that are inserted and removed; call it before blocks are created."""
    cast(Any, Block).__init__, cast(Any, Block)._attach_op = _initialize_block, _attach
    cast(Any, Block).detach_op, cast(Any, Block).split_before = _detach, _split
    cast(Any, Block).insert_op_before = _insert_before
    cast(Any, BlockOps).__len__ = _length

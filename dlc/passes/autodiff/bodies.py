"""What rules for ops with bodies share: the walks they take part in, and bodies taken out, copied and ended anew.

Bodies are open, so what a body reads from above is differentiated by as well as its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dlc.dialects import dl
from dlc.dialects.dl.build import Build
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.autodiff.term import Term


class ForwardWalk(Protocol):
    """Forward mode, as rules here use it."""

    tangents: dict[SSAValue, SSAValue]

    def walk(self, block: Block) -> None:
        """Puts the tangent of each result behind its op."""
        ...

    def tangent(self, value: SSAValue, b: Build) -> SSAValue:
        """The tangent of a value, zeros where it has none."""
        ...


class ReverseWalk(Protocol):
    """Reverse mode, as rules here use it."""

    b: Build
    active: set[SSAValue]

    def add(self, value: SSAValue, cotangent: Term | None) -> None:
        """One more part of a value's cotangent, unless it is not active."""
        ...

    def take(self, value: SSAValue) -> Term | None:
        """The cotangent of a value, None where it is zero."""
        ...

    def inside(self, block: Block, wrt: Sequence[SSAValue], seeds: Mapping[int, SSAValue]) -> list[SSAValue | None]:
        """Appends to another block the cotangents of what it computes with, from those of what it yields; None is zero."""
        ...

    def transpose(self, scratch: Block, values: Sequence[SSAValue], cotangents: Mapping[SSAValue, Term]) -> None:
        """Pulls cotangents through a block that computes tangents from those of `values`, its arguments."""
        ...


def copy_of(block: Block) -> Block:
    """A copy of a body; what it reads from above is the same."""
    region = block.parent
    assert region is not None
    made = region.clone()
    copy = made.block
    made.detach_block(copy)
    return copy


def silent_copy_of(block: Block) -> Block:
    """A copy of a body that is computed once more: what it prints has been printed."""
    copy = copy_of(block)
    for op in list(copy.walk()):
        if isinstance(op, dl.PrintOp):
            op.detach()
            op.erase()
    return copy


def bodies_of(op: Operation) -> list[Block]:
    """The bodies of an op, taken out of it."""
    return [region.detach_block(region.block) for region in op.regions]


def yielded(block: Block) -> Sequence[SSAValue]:
    """What a body yields."""
    last = block.last_op
    assert isinstance(last, dl.YieldOp)
    return last.values


def end(block: Block, values: Sequence[SSAValue]) -> None:
    """Makes a body yield other values."""
    last = block.last_op
    assert last is not None
    last.detach()
    last.erase()
    block.add_op(dl.YieldOp(values))


def at_end(block: Block) -> Build:
    """A builder before what ends a body."""
    assert block.last_op is not None
    return Build(block.last_op)


def put_before(op: Operation, new: Operation) -> None:
    """Puts an op with the same origin before another."""
    assert op.parent is not None
    new.location = op.location
    op.parent.insert_op_before(new, op)


def substitute(op: Operation, values: Sequence[SSAValue]) -> None:
    """Puts values in the place of an op's results, and erases it."""
    for old, value in zip(op.results, values, strict=True):
        old.replace_all_uses_with(value)
    op.detach()
    op.erase(safe_erase=False)

"""Helpers of the rules for ops with bodies: the interfaces of forward and reverse mode; detach, clone and rewrite bodies.

Bodies may capture outer values, which are differentiated as well as the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dlc.dialects import dl
from dlc.dialects.dl.build import DlBuilder
from dlc.ir import Block, Operation, SSAValue, erase_op
from dlc.passes.autodiff.term import Term


class ForwardModeContext(Protocol):
    """The interface of forward mode that the rules use."""

    tangents: dict[SSAValue, SSAValue]

    def walk(self, block: Block) -> None:
        """Insert the tangent of each result after its op."""
        ...

    def tangent(self, value: SSAValue, build: DlBuilder) -> SSAValue:
        """Return the tangent of a value, zeros if it has none."""
        ...


class ReverseModeContext(Protocol):
    """The interface of reverse mode that the rules use."""

    build: DlBuilder
    active: set[SSAValue]

    def add(self, value: SSAValue, cotangent: Term | None) -> None:
        """Accumulate into the cotangent of a value, if it is active."""
        ...

    def take(self, value: SSAValue) -> Term | None:
        """Return the cotangent of a value, None if it is zero."""
        ...

    def pull_back_block(self, block: Block, wrt: Sequence[SSAValue], seeds: Mapping[int, SSAValue]) -> list[SSAValue | None]:
        """Append the cotangents of `wrt` to another block, from the cotangents `seeds` of its results; None is zero."""
        ...

    def transpose(self, scratch: Block, values: Sequence[SSAValue], cotangents: Mapping[SSAValue, Term]) -> None:
        """Pull cotangents back through a block that computes tangents from those of `values`, its arguments."""
        ...


def clone_body(block: Block) -> Block:
    """Clone a body; captured values stay the same."""
    region = block.parent
    assert region is not None
    copied_region = region.clone()
    copy = copied_region.block
    copied_region.detach_block(copy)
    return copy


def clone_body_without_prints(block: Block) -> Block:
    """Clone a body for recomputation, without its prints."""
    copy = clone_body(block)
    for op in list(copy.walk()):
        if isinstance(op, dl.PrintOp):
            erase_op(op)
    return copy


def detach_bodies(op: Operation) -> list[Block]:
    """Detach the bodies of an op and return them."""
    return [region.detach_block(region.block) for region in op.regions]


def yielded_values(block: Block) -> Sequence[SSAValue]:
    """Return the values that a body yields."""
    last = block.last_op
    assert isinstance(last, dl.YieldOp)
    return last.values


def replace_yield(block: Block, values: Sequence[SSAValue]) -> None:
    """Make a body yield other values."""
    last = block.last_op
    assert last is not None
    erase_op(last)
    block.add_op(dl.YieldOp(values))


def builder_at_end(block: Block) -> DlBuilder:
    """Return a builder before the terminator of a body."""
    assert block.last_op is not None
    return DlBuilder(block.last_op)


def insert_before(op: Operation, new: Operation) -> None:
    """Insert an op before another, with the same location."""
    assert op.parent is not None
    new.location = op.location
    op.parent.insert_op_before(new, op)


def replace_and_erase(op: Operation, values: Sequence[SSAValue]) -> None:
    """Replace an op's results by values, and erase it."""
    for old, value in zip(op.results, values, strict=True):
        old.replace_all_uses_with(value)
    erase_op(op, is_unused=False)

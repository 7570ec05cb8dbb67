"""Ranges of iterations, and the loops over their steps.

A loop has a static step and separate code for the remainder; its end may be known only at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dlc.ir import Block, Region, SSAValue, scf
from dlc.passes.structured import Index, OpBuilder


@dataclass(frozen=True)
class IterationRange:
    """`size` iterations starting at `offset`.

    `tile_offset` is the offset in the register tile that they are part of, `group_offset` the offset in what the items
    of a group compute together.
    """

    offset: Index
    size: int
    tile_offset: Index = 0
    group_offset: Index = 0

    def part(self, builder: OpBuilder, start: Index, size: int) -> IterationRange:
        """Return `size` of these iterations starting at `start`."""
        add = builder.add
        return IterationRange(add(self.offset, start), size, add(self.tile_offset, start), add(self.group_offset, start))


Tile: TypeAlias = Mapping[int, IterationRange]


def steps(builder: OpBuilder, whole: IterationRange, step: int, name: str) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Yield each part of `step` iterations, in a loop if there are several, and the remainder."""
    main = whole.size - whole.size % step
    if main == step:
        yield builder, whole.part(builder, 0, step)
    elif main:
        loop = builder.loop(0, main, step, name=name)
        inside = builder.inside(loop.body.block)
        yield inside, whole.part(inside, loop.body.block.args[0], step)
        inside.yield_()
    if whole.size > main:
        yield builder, whole.part(builder, main, whole.size - main)


def steps_between(
    builder: OpBuilder, whole: IterationRange, step: int, first: Index, end: Index, name: str
) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Yield parts as `steps` does, from `first` to `end`, which are multiples of the step at run time (or the whole size)."""
    main = whole.size - whole.size % step
    loop = builder.loop(first, builder.minimum(end, main), step, name=name)
    inside = builder.inside(loop.body.block)
    yield inside, whole.part(inside, loop.body.block.args[0], step)
    inside.yield_()
    if whole.size > main:
        remainder = builder.branch(builder.compare(whole.size, "ule", end))
        yield remainder, whole.part(remainder, main, whole.size - main)


def dynamic_steps(
    builder: OpBuilder, whole: IterationRange, size: Index, step: int, divides: bool, name: str
) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Yield parts as `steps` does, for the first `size` iterations of a range, with `size` known only at run time.

    The remainder is computed in powers of two, each at most once: its binary digits. There is no remainder if `step`
    divides the size (`divides`).
    """
    remainder = 0 if divides else builder.remainder(size, step)
    loop = builder.loop(0, builder.subtract(size, remainder), step, name=name)
    inside = builder.inside(loop.body.block)
    yield inside, whole.part(inside, loop.body.block.args[0], step)
    inside.yield_()
    if divides or step == 1:
        return
    for digit in reversed(range((step - 1).bit_length())):
        part = 1 << digit
        # After the larger parts remainder(rest, 2 · part) iterations are left; this part is the first half of them.
        remaining = builder.remainder(remainder, 2 * part)
        branch = builder.branch(builder.compare(part, "ule", remaining))
        yield branch, whole.part(branch, branch.subtract(size, remaining), part)


def balanced_steps(
    builder: OpBuilder, whole: IterationRange, size: Index, max_step: int, name: str
) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Yield parts as `dynamic_steps` does, in as few nearly equal steps of up to `max_step` as possible; size ≥ 1.

    Of n = ⌈size / most⌉ steps the first size mod n have ⌊size / n⌋ + 1 iterations, the others one less.
    """
    count = builder.value(builder.floordiv(builder.add(size, max_step - 1), max_step))
    shorter = builder.quotient(size, count)
    longer = builder.add(shorter, 1)
    end = builder.times(builder.value(builder.subtract(size, builder.times(shorter, count))), longer)
    for step in reversed(range(1, max_step + 1)):
        last = builder.compare(shorter, "eq", step)
        upper = builder.select(last, size, builder.select(builder.compare(longer, "eq", step), end, 0))
        loop = builder.loop(builder.select(last, end, 0), upper, step, name=name)
        inside = builder.inside(loop.body.block)
        yield inside, whole.part(inside, loop.body.block.args[0], step)
        inside.yield_()


def full_or_remainder(builder: OpBuilder, whole: IterationRange, extent: int) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Yield the two cases of a range at a multiple of its size: it is inside the extent, or only the remainder is."""
    assert isinstance(whole.offset, SSAValue)
    inner, edge = Block(), Block()
    condition = builder.compare(whole.offset, "ule", extent - whole.size)
    builder.insert(scf.IfOp(condition, [], Region(inner), Region(edge)))
    for block, size in ((inner, whole.size), (edge, extent % whole.size)):
        body_builder = builder.inside(block)
        yield body_builder, IterationRange(whole.offset, size, whole.tile_offset, whole.group_offset)
        body_builder.yield_()

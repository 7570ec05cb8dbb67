"""Ranges of iterations, and the loops that split them into steps.

A loop has a static step, and separate code for the remainder. Its end may be dynamic.
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

    `tile_offset` is their offset in the register tile, `group_offset` their offset in the tile of the work-group.
    """

    offset: Index
    size: int
    tile_offset: Index = 0
    group_offset: Index = 0

    def subrange(self, builder: OpBuilder, start: Index, size: int) -> IterationRange:
        """Return `size` of these iterations, starting at the relative offset `start`."""
        add = builder.add
        return IterationRange(add(self.offset, start), size, add(self.tile_offset, start), add(self.group_offset, start))


Tile: TypeAlias = Mapping[int, IterationRange]


def steps(builder: OpBuilder, full_range: IterationRange, step: int, name: str) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Yield each step of `step` iterations, in a loop if there are several, and the remainder."""
    main_size = full_range.size - full_range.size % step
    if main_size == step:
        yield builder, full_range.subrange(builder, 0, step)
    elif main_size:
        loop = builder.loop(0, main_size, step, name=name)
        body_builder = builder.at_block_end(loop.body.block)
        yield body_builder, full_range.subrange(body_builder, loop.body.block.args[0], step)
        body_builder.yield_()
    if full_range.size > main_size:
        yield builder, full_range.subrange(builder, main_size, full_range.size - main_size)


def steps_between(
    builder: OpBuilder, full_range: IterationRange, step: int, first: Index, end: Index, name: str
) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Yield the steps of `steps` from `first` to `end`, which are multiples of the step (or the size of the range)."""
    main_size = full_range.size - full_range.size % step
    loop = builder.loop(first, builder.minimum(end, main_size), step, name=name)
    body_builder = builder.at_block_end(loop.body.block)
    yield body_builder, full_range.subrange(body_builder, loop.body.block.args[0], step)
    body_builder.yield_()
    if full_range.size > main_size:
        remainder = builder.branch(builder.compare(full_range.size, "ule", end))
        yield remainder, full_range.subrange(remainder, main_size, full_range.size - main_size)


def dynamic_steps(
    builder: OpBuilder, full_range: IterationRange, size: Index, step: int, has_full_steps: bool, name: str
) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Yield the steps of `steps` for the first `size` iterations of a range, with a dynamic `size`.

    The remainder is split into powers of two, one for each binary digit of it that is 1. There is no remainder if
    `has_full_steps`: `step` divides `size`.
    """
    remainder = 0 if has_full_steps else builder.remainder(size, step)
    loop = builder.loop(0, builder.subtract(size, remainder), step, name=name)
    body_builder = builder.at_block_end(loop.body.block)
    yield body_builder, full_range.subrange(body_builder, loop.body.block.args[0], step)
    body_builder.yield_()
    if has_full_steps or step == 1:
        return
    for digit in reversed(range((step - 1).bit_length())):
        power = 1 << digit
        # The larger powers leave remainder mod (2 · power) iterations; this one takes the first `power` of them.
        remaining = builder.remainder(remainder, 2 * power)
        branch = builder.branch(builder.compare(power, "ule", remaining))
        yield branch, full_range.subrange(branch, branch.subtract(size, remaining), power)


def balanced_steps(
    builder: OpBuilder, full_range: IterationRange, size: Index, max_step: int, name: str
) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Split the first `size` ≥ 1 iterations of a range evenly, into as few steps of up to `max_step` as possible.

    Of n = ⌈size / max_step⌉ steps the first size mod n have ⌊size / n⌋ + 1 iterations, the others one less.
    """
    num_steps = builder.value(builder.floordiv(builder.add(size, max_step - 1), max_step))
    short_step = builder.floordiv(size, num_steps)
    long_step = builder.add(short_step, 1)
    long_end = builder.multiply(builder.value(builder.subtract(size, builder.multiply(short_step, num_steps))), long_step)
    # Each size of a step needs its own loop; at run time at most two of these loops have iterations.
    for step in reversed(range(1, max_step + 1)):
        is_short = builder.compare(short_step, "eq", step)
        upper = builder.select(is_short, size, builder.select(builder.compare(long_step, "eq", step), long_end, 0))
        loop = builder.loop(builder.select(is_short, long_end, 0), upper, step, name=name)
        body_builder = builder.at_block_end(loop.body.block)
        yield body_builder, full_range.subrange(body_builder, loop.body.block.args[0], step)
        body_builder.yield_()


def full_or_remainder(
    builder: OpBuilder, full_range: IterationRange, extent: int
) -> Iterator[tuple[OpBuilder, IterationRange]]:
    """Emit an scf.if on whether a range ends inside the extent; yield the full range, and that of the remainder."""
    assert isinstance(full_range.offset, SSAValue)
    full_block, remainder_block = Block(), Block()
    condition = builder.compare(full_range.offset, "ule", extent - full_range.size)
    builder.insert(scf.IfOp(condition, [], Region(full_block), Region(remainder_block)))
    for block, size in ((full_block, full_range.size), (remainder_block, extent % full_range.size)):
        body_builder = builder.at_block_end(block)
        yield body_builder, IterationRange(full_range.offset, size, full_range.tile_offset, full_range.group_offset)
        body_builder.yield_()

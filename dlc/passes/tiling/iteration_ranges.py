"""Ranges of iterations, and the loops that split them into steps.

A loop has a static step, and separate code for the remainder. Its end may be dynamic. All functions that emit loops
are generators: they yield a builder for each piece of code, and the range that it covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dlc.ir import SSAValue
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

    def tile_at(self, builder: OpBuilder, start: Index, size: int) -> IterationRange:
        """Return the subrange of another register tile, which starts at the relative offset `start`."""
        return IterationRange(builder.add(self.offset, start), size, self.tile_offset, builder.add(self.group_offset, start))


Tile: TypeAlias = Mapping[int, IterationRange]
RangeSteps: TypeAlias = Iterator[tuple[OpBuilder, IterationRange]]
TileSteps: TypeAlias = Iterator[tuple[OpBuilder, Tile]]


def nested(
    builder: OpBuilder, tile: Tile, dims: Sequence[int], range_steps: Callable[[OpBuilder, Tile, int], RangeSteps]
) -> TileSteps:
    """Yield the steps of a tile along several dimensions, outermost first; `range_steps` emits those along one of them."""
    if not dims:
        yield builder, tile
        return
    d, *inner_dims = dims
    for body_builder, step_range in range_steps(builder, tile, d):
        yield from nested(body_builder, {**tile, d: step_range}, inner_dims, range_steps)


def nested_steps(builder: OpBuilder, tile: Tile, step_sizes: Mapping[int, int], prefix: str = "j") -> TileSteps:
    """Yield the steps of a tile along the dimensions of `step_sizes`, outermost first."""
    return nested(builder, tile, list(step_sizes), lambda b, outer, d: steps(b, outer[d], step_sizes[d], f"{prefix}{d}"))


def full_and_partial_tiles(
    builder: OpBuilder, tile: Tile, partial_dims: Sequence[int], extents: Mapping[int, int]
) -> TileSteps:
    """Yield a full tile, and the partial tiles at the ends of `partial_dims`, whose extents the tile does not divide."""
    return nested(builder, tile, partial_dims, lambda b, outer, d: full_or_remainder(b, outer[d], extents[d]))


def steps(builder: OpBuilder, full_range: IterationRange, step: int, name: str) -> RangeSteps:
    """Yield each step of `step` iterations, in a loop if there are several, and the remainder."""
    main_size = full_range.size - full_range.size % step
    if main_size == step:
        yield builder, full_range.subrange(builder, 0, step)
    elif main_size:
        for body_builder, start in builder.each(0, main_size, step, name):
            yield body_builder, full_range.subrange(body_builder, start, step)
    if full_range.size > main_size:
        yield builder, full_range.subrange(builder, main_size, full_range.size - main_size)


def fold_steps(
    builder: OpBuilder,
    bounds: tuple[int, int, int],
    initial: Sequence[SSAValue],
    update: Callable[[OpBuilder, Index, int, Sequence[SSAValue]], Sequence[SSAValue]],
    name: str,
) -> Sequence[SSAValue]:
    """Return values after the steps of a loop; `bounds` are its first index, its end and the step size.

    `update(builder, start, size, values)` emits a step, and returns the next values.
    """
    first, end, step = bounds
    main_end, values = end - (end - first) % step, initial
    if main_end > first:
        loop = builder.loop(first, main_end, step, values, name)
        body_builder, (start, *carried) = builder.at_block_end(loop.body.block), loop.body.block.args
        body_builder.yield_(*update(body_builder, start, step, carried))
        values = list(loop.results)
    return update(builder, main_end, end - main_end, values) if end > main_end else values


def steps_between(builder: OpBuilder, full_range: IterationRange, step: int, first: Index, end: Index, name: str) -> RangeSteps:
    """Yield the steps of `steps` from `first` to `end`, which are multiples of the step (or the size of the range)."""
    main_size = full_range.size - full_range.size % step
    for body_builder, start in builder.each(first, builder.minimum(end, main_size), step, name):
        yield body_builder, full_range.subrange(body_builder, start, step)
    if full_range.size > main_size:
        remainder = builder.branch(builder.compare(full_range.size, "ule", end))
        yield remainder, full_range.subrange(remainder, main_size, full_range.size - main_size)


def dynamic_steps(
    builder: OpBuilder, full_range: IterationRange, size: Index, step: int, has_full_steps: bool, name: str
) -> RangeSteps:
    """Yield the steps of `steps` for the first `size` iterations of a range, with a dynamic `size`.

    There is no remainder if `has_full_steps`: `step` divides `size`.
    """
    remainder = 0 if has_full_steps else builder.remainder(size, step)
    yield from full_steps(builder, full_range, builder.subtract(size, remainder), step, name)
    if not has_full_steps:
        yield from remainder_steps(builder, full_range, size, step, remainder)


def full_steps(builder: OpBuilder, full_range: IterationRange, size: Index, step: int, name: str) -> RangeSteps:
    """Yield the steps of the first `size` iterations of a range, a multiple of the step."""
    for body_builder, start in builder.each(0, size, step, name):
        yield body_builder, full_range.subrange(body_builder, start, step)


def remainder_steps(builder: OpBuilder, full_range: IterationRange, size: Index, step: int, remainder: Index) -> RangeSteps:
    """Yield the last `remainder` < `step` of the first `size` iterations: a power of two for each of its digits that is 1."""
    for digit in reversed(range((step - 1).bit_length())):
        power = 1 << digit
        # The larger powers leave remainder mod (2 · power) iterations; this one takes the first `power` of them.
        remaining = builder.remainder(remainder, 2 * power)
        branch = builder.branch(builder.compare(power, "ule", remaining))
        yield branch, full_range.subrange(branch, branch.subtract(size, remaining), power)


def balanced_steps(builder: OpBuilder, full_range: IterationRange, size: Index, max_step: int, name: str) -> RangeSteps:
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
        for body_builder, start in builder.each(builder.select(is_short, long_end, 0), upper, step, name):
            yield body_builder, full_range.subrange(body_builder, start, step)


def full_or_remainder(builder: OpBuilder, full_range: IterationRange, extent: int) -> RangeSteps:
    """Emit an scf.if on whether a range ends inside the extent; yield the full range, and that of the remainder."""
    assert isinstance(full_range.offset, SSAValue)
    full_builder, remainder_builder = builder.if_else(builder.compare(full_range.offset, "ule", extent - full_range.size))
    yield full_builder, full_range
    yield remainder_builder, replace(full_range, size=extent % full_range.size)

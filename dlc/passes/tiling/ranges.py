"""Ranges of iterations, and the loops that compute them part by part.

A loop goes in steps; what they do not divide remains, and an end may be known only when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dlc.ir import Block, Region, SSAValue, scf
from dlc.passes.structured import Index, Place


@dataclass(frozen=True)
class Range:
    """`size` iterations from `offset` on.

    `within` counts from the start of the register tile that they are part of, `grouped` from the start of what the items of
    a group compute together.
    """

    offset: Index
    size: int
    within: Index = 0
    grouped: Index = 0

    def part(self, place: Place, start: Index, size: int) -> Range:
        """`size` of these iterations, from the one at `start` on."""
        at = place.add
        return Range(at(self.offset, start), size, at(self.within, start), at(self.grouped, start))


Tile: TypeAlias = Mapping[int, Range]


def steps(place: Place, whole: Range, step: int, name: str) -> Iterator[tuple[Place, Range]]:
    """Where to compute each part of `step` iterations, in a loop if there are several, and what remains."""
    main = whole.size - whole.size % step
    if main == step:
        yield place, whole.part(place, 0, step)
    elif main:
        loop = place.loop(0, main, step, name=name)
        inside = place.inside(loop.body.block)
        yield inside, whole.part(inside, loop.body.block.args[0], step)
        inside.yield_()
    if whole.size > main:
        yield place, whole.part(place, main, whole.size - main)


def steps_between(place: Place, whole: Range, step: int, first: Index, end: Index, name: str) -> Iterator[tuple[Place, Range]]:
    """As `steps`, from `first` up to `end`: whole steps that are known only when the kernel runs, or all there is."""
    main = whole.size - whole.size % step
    loop = place.loop(first, place.minimum(end, main), step, name=name)
    inside = place.inside(loop.body.block)
    yield inside, whole.part(inside, loop.body.block.args[0], step)
    inside.yield_()
    if whole.size > main:
        rest = place.branch(place.compare(whole.size, "ule", end))
        yield rest, whole.part(rest, main, whole.size - main)


def open_steps(place: Place, whole: Range, size: Index, step: int, divides: bool, name: str) -> Iterator[tuple[Place, Range]]:
    """As `steps`, for the first `size` iterations of a range, which is known only when the kernel runs.

    What no step covers is computed in powers of two, each once or not at all: the binary digits of what remains. There is
    nothing left where the step `divides` the size.
    """
    rest = 0 if divides else place.remainder(size, step)
    loop = place.loop(0, place.subtract(size, rest), step, name=name)
    inside = place.inside(loop.body.block)
    yield inside, whole.part(inside, loop.body.block.args[0], step)
    inside.yield_()
    if divides or step == 1:
        return
    for digit in reversed(range((step - 1).bit_length())):
        part = 1 << digit
        # What remains behind the larger parts: remainder(rest, 2 · part) of it, of which this is the first half.
        left = place.remainder(rest, 2 * part)
        branch = place.branch(place.compare(part, "ule", left))
        yield branch, whole.part(branch, branch.subtract(size, left), part)


def even_steps(place: Place, whole: Range, size: Index, most: int, name: str) -> Iterator[tuple[Place, Range]]:
    """As `open_steps`, for one iteration at least, in as few steps of up to `most` as there can be, of about the same size.

    Of n = ⌈size / most⌉ steps the first size mod n take ⌊size / n⌋ + 1 iterations, the others one less.
    """
    count = place.value(place.floordiv(place.add(size, most - 1), most))
    shorter = place.quotient(size, count)
    longer = place.add(shorter, 1)
    end = place.times(place.value(place.subtract(size, place.times(shorter, count))), longer)
    for step in reversed(range(1, most + 1)):
        last = place.compare(shorter, "eq", step)
        upper = place.select(last, size, place.select(place.compare(longer, "eq", step), end, 0))
        loop = place.loop(place.select(last, end, 0), upper, step, name=name)
        inside = place.inside(loop.body.block)
        yield inside, whole.part(inside, loop.body.block.args[0], step)
        inside.yield_()


def whole_or_end(place: Place, whole: Range, extent: int) -> Iterator[tuple[Place, Range]]:
    """The two cases of a range that starts at a multiple of its size: it is inside of the extent, or what remains there."""
    assert isinstance(whole.offset, SSAValue)
    inner, edge = Block(), Block()
    condition = place.compare(whole.offset, "ule", extent - whole.size)
    place.insert(scf.IfOp(condition, [], Region(inner), Region(edge)))
    for block, size in ((inner, whole.size), (edge, extent % whole.size)):
        at = place.inside(block)
        yield at, Range(whole.offset, size, whole.within, whole.grouped)
        at.yield_()

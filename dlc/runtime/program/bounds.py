"""Which parts of its buffers a program's instructions are given, whatever slots hold then: what a file says is not trusted.

A slot is known by *points*: it never holds an address outside of the span of those in one buffer. The element that a loop is
at lies between its first and its last one, so these two say all.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dlc.dims import Size, is_symbol, never_negative, substitute
from dlc.errors import ModelError
from dlc.runtime.program.host_program import (
    NUMBER_BYTES,
    Branch,
    Carried,
    Compute,
    Decide,
    Element,
    Fail,
    HostArray,
    HostProgram,
    Instruction,
    Launch,
    Loop,
    OpenLaunch,
    Place,
    Print,
    While,
    walk,
)

# Loops in loops are gone through again and again until it is known where slots point; no program comes near. One loop after
# another, what may not run at all adds a place to those where its result may be.
_MOST_CHECKS = 300_000
_MOST_CHECKS_PER_INSTRUCTION = 1_000


@dataclass(frozen=True)
class Part:
    """Bytes from `start` to `end` of a buffer; none are touched unless each of `loops`, which are open counts, is 1 or more."""

    buffer: int
    start: Size
    end: Size
    loops: frozenset[Size]

    def fits(self, members: Iterable[Size]) -> bool:
        """Whether it is seen to be in a buffer as large as the largest member."""
        more: dict[str, Size] = {str(count): count + 1 for count in self.loops if is_symbol(count)}

        def holds(size: Size) -> bool:
            return never_negative(substitute(size, more))

        return holds(self.start) and any(holds(member - self.end) for member in members)


def check_program(host: HostProgram, kernels: Collection[str]) -> None:
    """Raises ModelError unless every launch runs one of `kernels`, or copies, on parts of the program's buffers, and loops
    move within them.

    What a kernel's code does within the parts that it is given is not seen from here.
    """
    sizes = host.buffers
    for output, donor in host.donors.items():
        pair = [infos[k] for infos, k in ((host.outputs, output), (host.inputs, donor)) if k < len(infos)]
        if len(pair) < 2 or (pair[0].shape, pair[0].dtype) != (pair[1].shape, pair[1].dtype):
            raise ModelError(f"output {output} cannot be written over input {donor}")
    if len(set(host.donors.values())) < len(host.donors):
        raise ModelError("an input cannot be two outputs")
    if host.slots < len(sizes):
        raise ModelError(f"{host.slots} slots for {len(sizes)} buffers")
    for launch in host.launches:
        _require_launch(launch, kernels)
    for part in parts_of(host.instructions, range(1, len(sizes)), host.slots):
        if not part.fits((sizes[part.buffer],)):
            raise ModelError(f"bytes {part.start} to {part.end} of slot {part.buffer} are no part of the buffers")


def _require_launch(launch: Launch, kernels: Collection[str]) -> None:
    what = f"a launch of {launch.kernel or 'a copy'}"
    if launch.kernel is None:
        if len(launch.arguments) != 2 or launch.sizes != launch.numbers * 2:
            raise ModelError(f"{what}: its arguments are no target and source of one size")
    elif launch.kernel not in kernels:
        raise ModelError(f"{what}: there is no such kernel")
    if len(launch.arguments) != len(launch.sizes):
        raise ModelError(f"{what}: {len(launch.arguments)} arguments of {len(launch.sizes)} sizes")


def parts_of(instructions: Sequence[Instruction], buffers: Collection[int], slots: int) -> Collection[Part]:
    """The parts of buffers, which are the slots of these numbers, that instructions are given, each once.

    Raises ModelError for instructions that set a buffer's slot, or use one that holds no address then.
    """
    moving = moved_slots(instructions)
    last = max(buffers, default=0)
    if strange := [slot for slot in moving if not last < slot < slots]:
        raise ModelError(f"slot {strange[0]} is none that a loop may set")
    if slots - 1 - last > len(moving):
        raise ModelError(f"{slots} slots, of which loops set {len(moving)}")
    # Otherwise a loop in a loop could move what the outer one counts on.
    if len(set(moving)) < len(moving):
        raise ModelError("a slot that two loops set")
    walker = _Walker(_MOST_CHECKS + _MOST_CHECKS_PER_INSTRUCTION * sum(1 for _ in walk(instructions)))
    walker.block(instructions, ChainMap({slot: frozenset({_Point(slot, 0)}) for slot in buffers}))
    return walker.parts.keys()


def moved_slots(instructions: Sequence[Instruction]) -> list[int]:
    """The slots that loops set."""
    return [s.slot for i, _ in walk(instructions) for s in _moved(i)]


def _moved(instruction: Instruction) -> Sequence[Carried | Element]:
    match instruction:
        case Loop(carried=carried, elements=elements):
            return (*carried, *elements)
        case While(carried=carried):
            return carried
        case _:
            return ()


@dataclass(frozen=True)
class _Point:
    """An offset in a buffer that a slot holds only if each of `loops` runs."""

    buffer: int
    offset: Size
    loops: frozenset[Size] = frozenset()


_Points: TypeAlias = "frozenset[_Point]"
# What loops and branches set in their bodies lies above what is around them.
_Known: TypeAlias = "ChainMap[int, _Points]"


class _Walker:
    def __init__(self, most_checks: int) -> None:
        self.parts: dict[Part, None] = {}
        self.loops = frozenset[Size]()  # that the instructions are in
        self.left = most_checks

    def block(self, instructions: Sequence[Instruction], known: _Known) -> None:
        """Goes through instructions that find the slots so; leaves `known` as they leave the slots."""
        for instruction in instructions:
            self.spend(1)
            match instruction:
                case Launch() | OpenLaunch():
                    for place, size in zip(instruction.arguments, instruction.sizes, strict=True):
                        self.part(place, size, known)
                case Loop():
                    self.loop(instruction, known)
                case While():
                    self.part(instruction.begin, 1, known)
                    self.repeated(instruction, known, {})
                case Branch():
                    self.part(instruction.condition, 1, known)
                    # One loop sets a slot: none that is known before it, and none of both bodies.
                    self.block(instruction.then, known.new_child())
                    self.block(instruction.otherwise, known.new_child())
                case Print(values=values):
                    self.arrays(values, known)
                case Compute(arguments=arguments, results=results):
                    self.arrays((*arguments, *results), known)
                case Decide(place=place):
                    self.part(place, NUMBER_BYTES, known)
                case Fail(numbers=numbers):
                    for place in numbers:
                        self.part(place, NUMBER_BYTES, known)

    def loop(self, loop: Loop, known: _Known) -> None:
        if loop.count == 0:
            known.update({c.slot: self.points(c.first, known) for c in loop.carried})
            return
        outer, runs = self.loops, frozenset[Size](() if isinstance(loop.count, int) else (loop.count,))
        elements: dict[int, _Points] = {}
        for element in loop.elements:
            first = frozenset(replace(p, loops=p.loops | runs) for p in self.points(element.first, known))
            elements[element.slot] = first | _shifted(first, element.step * (loop.count - 1))
        self.loops = outer | runs
        self.repeated(loop, known, elements)
        self.loops = outer

    def repeated(self, loop: Loop | While, known: _Known, elements: Mapping[int, _Points]) -> None:
        """Goes through a body whose carried slots are what they are first, or what any step leaves."""
        known.update({c.slot: points for c, points in [(c, self.points(c.first, known)) for c in loop.carried]})
        # Each round, what is handed on reaches one more slot.
        for _ in range(len(loop.carried) + 2):
            inside = known.new_child(dict(elements))
            self.block(loop.body, inside)
            if isinstance(loop, While):
                self.part(loop.again, 1, inside)
            after = {c.slot: known[c.slot] | self.points(c.following, inside) for c in loop.carried}
            if all(known[slot] == points for slot, points in after.items()):
                if isinstance(loop, Loop) and isinstance(loop.count, int) and loop.count > 0:
                    # It runs: nothing is where it was at first any more, unless it is handed on.
                    known.update({c.slot: self.points(c.following, inside) for c in loop.carried})
                return
            known.update(after)
        raise ModelError("a loop's carried slots move on without end")

    def arrays(self, arrays: Sequence[HostArray], known: _Known) -> None:
        for array in arrays:
            self.part(array.place, array.bytes, known)

    def part(self, place: Place, size: Size, known: _Known) -> None:
        """Notes that an instruction is given so many bytes from a place on."""
        for p in self.points(place, known):
            self.parts[Part(p.buffer, p.offset, p.offset + size, p.loops | self.loops)] = None

    def points(self, place: tuple[int, Size], known: Mapping[int, _Points]) -> _Points:
        slot, offset = place
        if slot not in known:
            raise ModelError(f"slot {slot} holds no address")
        self.spend(len(known[slot]))
        return _shifted(known[slot], offset)

    def spend(self, checks: int) -> None:
        self.left -= checks
        if self.left < 0:
            raise ModelError("loops in loops, too deep to be checked")


def _shifted(points: _Points, distance: Size) -> _Points:
    return points if distance == 0 else frozenset(replace(p, offset=p.offset + distance) for p in points)

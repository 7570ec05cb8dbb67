"""A program whose sizes come with a call as one of known sizes, for those of a call: what runs the one runs the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dlc.arrays import TensorInfo
from dlc.dims import Dim, Range, Size, substitute
from dlc.runtime.program.host_program import (
    ARENA,
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
    OpenKernel,
    OpenLaunch,
    Place,
    Print,
    While,
    walk,
)
from dlc.runtime.program.open_program import Binder, Bound, OpenProgram, resolved


class KnownSizes:
    """Makes the program for inputs of given shapes; regions of the arena begin at multiples of `alignment` bytes."""

    def __init__(self, program: OpenProgram, kernels: Mapping[str, OpenKernel], alignment: int) -> None:
        self.program = program
        self.instructions = resolved(program.instructions, kernels)
        self._sizes = list(dict.fromkeys(s for s in _sizes_in(self.instructions) if not isinstance(s, int)))
        self._bind = Binder(program, self.instructions, self._sizes, alignment)

    def __call__(self, shapes: Sequence[tuple[int, ...]], decided: Sequence[int] | None = None) -> HostProgram:
        """The program for inputs of these shapes, and sizes that data decided: without these, what they are at least.

        Raises what `Binder` raises.
        """
        program = self.program
        decided = program.undecided if decided is None else decided
        bound, sizes = self._bind(shapes, decided), self._bind.sizes(shapes, decided)
        numbers = dict(zip(self._sizes, bound.numbers, strict=True))
        return HostProgram(
            _shaped(program.inputs, shapes),
            _shaped(program.outputs, bound.outputs),
            program.weights,
            bound.arena_bytes,
            program.slots - len(program.regions),
            _Writer(program, bound, numbers, sizes).block(self.instructions),
        )

    def representative(self) -> HostProgram:
        """The program for the sizes that its plans are made for."""
        shapes = [info.shape for info in self.program.inputs]
        symbols = {symbol for shape in shapes for size in shape for symbol in Dim.lift(size).symbols()}
        sizes = {s: self.program.ranges.get(s, Range()).representative for s in (*symbols, *self.program.decided)}
        known = [tuple(int(substitute(size, sizes)) for size in shape) for shape in shapes]
        return self(known, [sizes[symbol] for symbol in self.program.decided])


def _shaped(infos: Sequence[TensorInfo], shapes: Sequence[tuple[int, ...]]) -> tuple[TensorInfo, ...]:
    return tuple(replace(info, shape=shape) for info, shape in zip(infos, shapes, strict=True))


def _sizes_in(instructions: Sequence[Instruction]) -> Iterator[Size]:
    for instruction, _ in walk(instructions):
        match instruction:
            case OpenLaunch(numbers=numbers, sizes=sizes):
                yield from (*numbers, *sizes)
            case Loop(count=count, elements=elements):
                yield count
                for element in elements:
                    yield from (element.first[1], element.step)
            case _:
                pass


class _Writer:
    """Writes instructions with numbers in place of sizes, and parts of one arena in place of its regions."""

    def __init__(self, program: OpenProgram, bound: Bound, numbers: Mapping[Dim, int], sizes: Mapping[str, int]) -> None:
        self.first, self.starts, self.numbers, self.sizes = program.first_region, bound.starts, numbers, sizes

    def block(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        return tuple(map(self.one, instructions))

    def one(self, instruction: Instruction) -> Instruction:
        match instruction:
            case OpenLaunch(kernel, arguments, numbers, sizes):
                return Launch(kernel, tuple(map(self.place, arguments)), self.known(sizes), self.known(numbers))
            case Loop(count, carried, elements, body):
                moved = tuple(map(self.element, elements))
                return Loop(self.number(count), self.carried(carried), moved, self.block(body))
            case While(begin, again, carried, body):
                return While(self.place(begin), self.place(again), self.carried(carried), self.block(body))
            case Branch(condition, then, otherwise):
                return Branch(self.place(condition), self.block(then), self.block(otherwise))
            case Fail(message, numbers):
                return Fail(message, tuple(map(self.place, numbers)))
            case Print(pieces, values):
                return Print(pieces, self.arrays(values, self.sizes))
            case Compute(arguments=arguments, results=results, decided=decided):
                # What it decides is not known before it has run.
                sizes = {symbol: size for symbol, size in self.sizes.items() if symbol not in decided}
                return replace(instruction, arguments=self.arrays(arguments, sizes), results=self.arrays(results, sizes))
            case Decide(symbol, place):
                return Decide(symbol, self.place(place))
            case Launch():
                return instruction

    def arrays(self, arrays: Sequence[HostArray], sizes: Mapping[str, int]) -> tuple[HostArray, ...]:
        return tuple(replace(array.at(sizes), place=self.place(array.place)) for array in arrays)

    def number(self, size: Size) -> int:
        return size if isinstance(size, int) else self.numbers[size]

    def known(self, sizes: Sequence[Size]) -> tuple[int, ...]:
        return tuple(map(self.number, sizes))

    def slot(self, slot: int) -> Place:
        """What a slot of the program is."""
        region = slot - self.first
        if region < 0:
            return slot, 0
        return (ARENA, self.starts[region]) if region < len(self.starts) else (slot - len(self.starts), 0)

    def place(self, place: tuple[int, Size]) -> Place:
        slot, start = self.slot(place[0])
        return slot, start + self.number(place[1])

    def element(self, element: Element) -> Element:
        return Element(self.slot(element.slot)[0], self.place(element.first), self.number(element.step))

    def carried(self, carried: Sequence[Carried]) -> tuple[Carried, ...]:
        return tuple(Carried(self.slot(c.slot)[0], self.place(c.first), self.place(c.following)) for c in carried)

"""Host programs whose sizes come with a call.

Sizes are polynomials in the symbols of the inputs' shapes. Which buffers share memory is decided when the program is
compiled; how large they are, and so where each begins, when sizes are bound: by one function of all of them. Whether what
kernels are given are parts of the buffers is seen from the polynomials as far as they say, once; the rest in each call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TypeAlias

from dlc.arrays import ALIGNMENT, TensorInfo
from dlc.dims import Range, Size, bind_sizes, never_negative, product, require_in_range, substitute
from dlc.errors import ModelError, ShapeError
from dlc.runtime.program.bounds import Part, parts_of
from dlc.runtime.program.host_program import (
    FIRST_INPUT,
    Branch,
    Compute,
    Decide,
    Instruction,
    Loop,
    OpenKernel,
    OpenLaunch,
    While,
    runs_of,
    walk,
)
from dlc.runtime.sizes.input_sizes import InputSizes
from dlc.runtime.sizes.size_function import size_function

# Beyond, addresses could wrap around.
_TOO_LARGE = 1 << 62
# More than any memory has, and little enough that few products of it overflow.
LARGEST_SIZE = 1 << 40


class OutsideError(ShapeError):
    """A size that data decided is not among those that a program serves."""


@dataclass(frozen=True)
class OpenProgram:
    """What runs in which order on which buffers.

    Behind the slots of the weights come those of the arena's regions, each as large as the largest of its sizes, in bytes; and
    behind these so many `moving` ones, of what changes while the program runs. `slots` is how many there are in all.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    weights: tuple[TensorInfo, ...]
    ranges: Mapping[str, Range]
    regions: tuple[tuple[Size, ...], ...]
    instructions: tuple[Instruction, ...]
    moving: int = 0
    # Sizes that data decides, and those that they have to be.
    equal: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def runs(self) -> Counter[str | None]:
        """As of HostProgram."""
        return runs_of(self.instructions)

    @cached_property
    def decided(self) -> tuple[str, ...]:
        """The sizes that data decides, in the order in which it does."""
        found: list[str] = []
        for instruction, _ in walk(self.instructions):
            match instruction:
                case Decide(symbol=symbol):
                    found.append(symbol)
                case Compute(decided=decided):
                    found += decided
                case _:
                    pass
        return tuple(found)

    @property
    def undecided(self) -> list[int]:
        """What the sizes that data decides are taken for before it does."""
        return [self.ranges.get(symbol, Range()).low for symbol in self.decided]

    @property
    def first_region(self) -> int:
        """The slot of the first region."""
        return FIRST_INPUT + len(self.inputs) + len(self.outputs) + len(self.weights)

    @property
    def slots(self) -> int:
        return self.first_region + len(self.regions) + self.moving

    @property
    def buffers(self) -> dict[int, tuple[Size, ...]]:
        """By slot the sizes in bytes of which a buffer is as large as the largest."""
        infos = (*self.inputs, *self.outputs, *self.weights)
        return dict(enumerate((*((product(i.shape) * i.dtype.itemsize,) for i in infos), *self.regions), FIRST_INPUT))

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """What the shapes of inputs make of the symbols.

        Raises ShapeError for inputs that do not fit one another, and for a size that is outside of its range.
        """
        sizes: dict[str, int] = {}
        for info, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) != len(info.shape):
                raise ShapeError(f"input {info}: got the shape {shape}")
            bind_sizes(info.shape, shape, sizes)
        for info, shape in zip(self.inputs, shapes, strict=True):
            expected = tuple(substitute(size, sizes) for size in info.shape)
            if shape != expected:
                raise ShapeError(f"input {info} with {sizes}: expected {expected}, got {shape}")
            require_in_range(f"input {info}", info.shape, sizes, self.ranges)
        return sizes


@dataclass(frozen=True)
class Bound:
    """What a program is for the sizes of a call: its outputs' shapes, where in the arena regions begin and the last one ends,
    and the numbers that whoever runs it asked for."""

    outputs: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    arena_bytes: int
    numbers: tuple[int, ...]


# Sizes of which a buffer is as large as the largest, how often loops run, and where parts of it that these reach begin and end.
Parts: TypeAlias = "tuple[list[Size], list[Size], list[Size], list[Size]]"


@dataclass(frozen=True)
class Demands:
    """What is not seen from the polynomials: `counts` must not be negative, and `parts` must be within their buffers, unless
    one of their loops does not run."""

    counts: tuple[Size, ...]
    parts: tuple[Parts, ...]

    @staticmethod
    def of(program: OpenProgram, instructions: Sequence[Instruction]) -> Demands:
        """Those of a program with its instructions resolved.

        Raises ModelError for instructions that are not on parts of the program's buffers whatever the sizes are.
        """
        buffers = program.buffers
        parts = [p for p in parts_of(instructions, buffers, program.slots) if not p.fits(buffers[p.buffer])]
        counts = chain(_counts(instructions), *(info.shape for info in program.outputs), *program.regions)
        return Demands(
            tuple(distinct(size for size in counts if not never_negative(size))),
            tuple((distinct(buffers[b]), loops, first, last) for b, loops, first, last in _together(parts)),
        )


def decided_size(
    program: OpenProgram, shapes: Sequence[tuple[int, ...]], decided: Sequence[int], symbol: str, number: int
) -> int:
    """A number as the size that it decides, after others in a call with inputs of these shapes.

    Raises ModelError for one that is none, and OutsideError for one that the program does not serve.
    """
    counted = f"the size {symbol} of {', '.join(map(str, program.inputs))}: the program counted {number}"
    if not 0 <= number <= LARGEST_SIZE:
        raise ModelError(counted)
    range_, same = program.ranges.get(symbol), program.equal.get(symbol)
    if range_ is not None and number not in range_:
        raise OutsideError(f"{counted}; it is compiled for {range_}")
    if same is not None:
        expected = {**program.sizes(shapes), **dict(zip(program.decided, decided, strict=False))}[same]
        if number != expected:
            raise OutsideError(f"{counted}; it is compiled for {same}, which is {expected}")
    return number


class Binder:
    """Binds the sizes of calls; `numbers` are those that whoever runs the instructions needs, which know their kernels.

    Raises ModelError for instructions that are not on parts of the program's buffers whatever the sizes are.
    """

    def __init__(
        self,
        program: OpenProgram,
        instructions: Sequence[Instruction],
        numbers: Sequence[Size],
        alignment: int = ALIGNMENT,
    ) -> None:
        self.program, self.alignment = program, alignment
        self.inputs = InputSizes(program.inputs)
        self.symbols = (*self.inputs.symbols, *program.decided)
        if len(set(self.symbols)) < len(self.symbols):
            raise ModelError(f"of the sizes {', '.join(self.symbols)} one is decided twice")
        for symbol, same in program.equal.items():
            before = self.symbols[: self.symbols.index(symbol)] if symbol in program.decided else ()
            if same not in before:
                raise ModelError(f"{symbol} has to be {same}, which is no size that is known when {symbol} is decided")
        demands = Demands.of(program, instructions)
        self._at = size_function(
            self.symbols,
            (
                [info.shape for info in program.inputs],
                [info.shape for info in program.outputs],
                list(map(distinct, program.regions)),
                demands.parts,
                (0, *demands.counts),
                tuple(numbers),
            ),
        )
        symbols = self.inputs.symbols
        self._ranges = [(symbols.index(name), range_) for name, range_ in program.ranges.items() if name in symbols]

    def sizes(self, shapes: Sequence[tuple[int, ...]], decided: Sequence[int]) -> dict[str, int]:
        """The sizes of a call by name."""
        return dict(zip(self.symbols, (*self.inputs.of(shapes), *decided), strict=True))

    def __call__(self, shapes: Sequence[tuple[int, ...]], decided: Sequence[int] = ()) -> Bound:
        """The program for inputs of these shapes, and sizes that data decided: 0 where it did not yet.

        Raises ShapeError for shapes that do not fit one another, and for a size that is outside of its range; ModelError where
        a launch is no part of the buffers then, whatever the program says.
        """
        try:
            sizes = (*self.inputs.of(shapes), *decided)
            inputs, outputs, regions, parts, counts, numbers = self._at(*sizes)
        except (IndexError, ZeroDivisionError) as error:
            raise ShapeError(f"{self.program.sizes(shapes)}: a size is no number then: {error}") from error
        if inputs != tuple(shapes) or not all(sizes[k] in range_ for k, range_ in self._ranges):
            self.program.sizes(shapes)
        if min(counts) < 0 or not -_TOO_LARGE < min(numbers, default=0) <= max(numbers, default=0) < _TOO_LARGE:
            raise ModelError(f"sizes of {min(counts)}, {numbers} for inputs of {shapes}")
        for members, loops, first, last in parts:
            if all(loops) and not 0 <= min(first) <= max(last) <= max(members):
                raise ModelError(
                    f"a part from {min(first)} to {max(last)} of a buffer of {max(members)} bytes, for inputs of {shapes}"
                )
        starts: list[int] = []
        end = 0
        for members in regions:
            starts.append(end)
            end += -(-max(members) // self.alignment) * self.alignment
        return Bound(outputs, tuple(starts), end, numbers)


def resolved(instructions: Sequence[Instruction], kernels: Mapping[str, OpenKernel]) -> tuple[Instruction, ...]:
    """Instructions whose launches know what their kernels make of their numbers; raises what `OpenLaunch.of` raises."""

    def one(instruction: Instruction) -> Instruction:
        match instruction:
            case OpenLaunch():
                return instruction.of(kernels)
            case Loop(body=body) | While(body=body):
                return replace(instruction, body=resolved(body, kernels))
            case Branch(then=then, otherwise=otherwise):
                return replace(instruction, then=resolved(then, kernels), otherwise=resolved(otherwise, kernels))
            case _:
                return instruction

    return tuple(map(one, instructions))


def _counts(instructions: Sequence[Instruction]) -> Iterator[Size]:
    """What must not be negative: bytes of launches, and how often loops run."""
    for instruction, _ in walk(instructions):
        match instruction:
            case OpenLaunch(sizes=sizes):
                yield from sizes
            case Loop(count=count):
                yield count
            case _:
                pass


def _together(parts: Iterable[Part]) -> Iterator[tuple[int, list[Size], list[Size], list[Size]]]:
    """Of the parts of a buffer that are reached where the same loops run: the buffer, how often these run, where the parts
    begin and where they end."""
    groups: dict[tuple[int, frozenset[Size]], list[Part]] = {}
    for part in parts:
        groups.setdefault((part.buffer, part.loops), []).append(part)
    for (buffer, loops), own in groups.items():
        yield buffer, list(loops), list(dict.fromkeys(p.start for p in own)), distinct(p.end for p in own)


def distinct(sizes: Iterable[Size]) -> list[Size]:
    """Sizes as they are needed for the largest of them: each once, and of the known ones the largest."""
    distinct = dict.fromkeys(sizes)
    known = [size for size in distinct if isinstance(size, int)]
    return [*(size for size in distinct if not isinstance(size, int)), *([max(known)] if known else [])]

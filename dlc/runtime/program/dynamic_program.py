"""Dynamic-shape host programs.

Sizes are polynomials in the symbols of the input shapes. Which buffers share memory is decided at compile time; their sizes
and offsets are computed when sizes are bound, by one function for all of them. Bounds are proved from the polynomials once,
as far as possible; the rest is checked in each call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TypeAlias

from dlc.arrays import ALIGNMENT_BYTES, TensorInfo
from dlc.dims import Size, SizeRange, bind_sizes, is_nonnegative, product, require_in_range, substitute
from dlc.errors import ModelError, ShapeError
from dlc.guards import Guard
from dlc.runtime.program.bounds import ByteRange, accessed_ranges
from dlc.runtime.program.host_program import (
    FIRST_INPUT_SLOT,
    Branch,
    DynamicLaunch,
    Instruction,
    KernelSignature,
    Loop,
    PythonCall,
    SetSize,
    While,
    count_runs,
    walk,
)
from dlc.runtime.sizes.input_sizes import InputSizes
from dlc.runtime.sizes.size_function import size_function

# Larger values could overflow addresses.
_MAX_ADDRESS_BYTES = 1 << 62
# Larger than any memory, and small enough to be multiplied without overflow.
MAX_SIZE = 1 << 40


class OutOfDomainError(ShapeError):
    """The program does not support a data-dependent size."""


@dataclass(frozen=True)
class DynamicProgram:
    """A dynamic-shape host program.

    The slots of weights are followed by those of the arena's regions, each as large as the largest of its sizes in bytes, and
    by `loop_slots` slots that loops set. `equal` maps data-dependent sizes to the sizes that they must equal. `guards`
    are further conditions on the sizes of inputs.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    weights: tuple[TensorInfo, ...]
    ranges: Mapping[str, SizeRange]
    regions: tuple[tuple[Size, ...], ...]
    instructions: tuple[Instruction, ...]
    loop_slots: int = 0
    equal: Mapping[str, str] = field(default_factory=dict[str, str])
    guards: tuple[Guard, ...] = ()

    @property
    def runs(self) -> Counter[str | None]:
        """See HostProgram.runs."""
        return count_runs(self.instructions)

    @cached_property
    def data_dependent_sizes(self) -> tuple[str, ...]:
        """The data-dependent sizes, in the order in which they become known."""
        sizes: list[str] = []
        for instruction, _ in walk(self.instructions):
            match instruction:
                case SetSize(symbol=symbol):
                    sizes.append(symbol)
                case PythonCall(data_dependent_sizes=data_dependent_sizes):
                    sizes += data_dependent_sizes
                case _:
                    pass
        return tuple(sizes)

    @property
    def initial_sizes(self) -> list[int]:
        """The values of data-dependent sizes before they are known."""
        return [self.ranges.get(symbol, SizeRange()).low for symbol in self.data_dependent_sizes]

    @property
    def first_region(self) -> int:
        """The slot of the first region."""
        return FIRST_INPUT_SLOT + len(self.inputs) + len(self.outputs) + len(self.weights)

    @property
    def slots(self) -> int:
        return self.first_region + len(self.regions) + self.loop_slots

    @property
    def buffers(self) -> dict[int, tuple[Size, ...]]:
        """For each slot of a buffer, byte sizes; the buffer is as large as the largest of them."""
        infos = (*self.inputs, *self.outputs, *self.weights)
        return dict(enumerate((*((product(i.shape) * i.dtype.itemsize,) for i in infos), *self.regions), FIRST_INPUT_SLOT))

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """Return the values of the symbols for these input shapes.

        Raises ShapeError for inconsistent input shapes, and for a size outside of its range.
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
        for guard in self.guards:
            if not guard.holds(sizes):
                text = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
                raise ShapeError(f"inputs {', '.join(map(str, self.inputs))} with {text}: {guard.description}")
        return sizes


@dataclass(frozen=True)
class BoundSizes:
    """A program bound to the sizes of a call: output shapes, arena offsets of regions, arena size, extra sizes."""

    outputs: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    arena_bytes: int
    extra_sizes: tuple[int, ...]


# The candidates for a buffer's size, the iteration counts of loops, and the starts and ends of ranges accessed in them.
RangeGroup: TypeAlias = "tuple[list[Size], list[Size], list[Size], list[Size]]"


@dataclass(frozen=True)
class BoundsChecks:
    """Checks that cannot be proved from the polynomials.

    `counts` must not be negative. The ranges of `groups` must be inside of their buffers unless one of their loops has no
    iteration.
    """

    counts: tuple[Size, ...]
    groups: tuple[RangeGroup, ...]

    @staticmethod
    def of(program: DynamicProgram, instructions: Sequence[Instruction]) -> BoundsChecks:
        """Return the checks of a program with resolved launches.

        Raises ModelError for instructions that are invalid for all sizes.
        """
        buffers = program.buffers
        unproved = [p for p in accessed_ranges(instructions, buffers, program.slots) if not p.fits(buffers[p.buffer])]
        counts = chain(_counts(instructions), *(info.shape for info in program.outputs), *program.regions)
        return BoundsChecks(
            tuple(candidates_for_max(size for size in counts if not is_nonnegative(size))),
            tuple((candidates_for_max(buffers[b]), loops, first, last) for b, loops, first, last in _group_ranges(unproved)),
        )


def validate_size(
    program: DynamicProgram, shapes: Sequence[tuple[int, ...]], data_dependent_sizes: Sequence[int], symbol: str, size: int
) -> int:
    """Return a data-dependent size after validation, given the input shapes and the previous data-dependent sizes.

    Raises ModelError for an impossible size, and OutOfDomainError for one that the program does not support.
    """
    message = f"the data-dependent size {symbol} of {', '.join(map(str, program.inputs))} is {size}"
    if not 0 <= size <= MAX_SIZE:
        raise ModelError(message)
    range_, equal_size = program.ranges.get(symbol), program.equal.get(symbol)
    if range_ is not None and size not in range_:
        raise OutOfDomainError(f"{message}; the program is compiled for {range_}")
    if equal_size is not None:
        expected = {**program.sizes(shapes), **dict(zip(program.data_dependent_sizes, data_dependent_sizes, strict=False))}[
            equal_size
        ]
        if size != expected:
            raise OutOfDomainError(f"{message}; the program is compiled for {equal_size}, which is {expected}")
    return size


class SizeBinder:
    """Binds a program to the sizes of calls; `extra_sizes` are additional sizes that the executor needs.

    Raises ModelError for instructions that are invalid for all sizes.
    """

    def __init__(
        self,
        program: DynamicProgram,
        instructions: Sequence[Instruction],
        extra_sizes: Sequence[Size],
        alignment: int = ALIGNMENT_BYTES,
    ) -> None:
        self.program, self.alignment = program, alignment
        self.inputs = InputSizes(program.inputs)
        self.symbols = (*self.inputs.symbols, *program.data_dependent_sizes)
        if len(set(self.symbols)) < len(self.symbols):
            raise ModelError(f"one of the sizes {', '.join(self.symbols)} is defined twice")
        for symbol, equal_size in program.equal.items():
            earlier = self.symbols[: self.symbols.index(symbol)] if symbol in program.data_dependent_sizes else ()
            if equal_size not in earlier:
                raise ModelError(f"{symbol} must equal {equal_size}, which is not known before {symbol}")
        checks = BoundsChecks.of(program, instructions)
        self._evaluate = size_function(
            self.symbols,
            (
                [info.shape for info in program.inputs],
                [info.shape for info in program.outputs],
                list(map(candidates_for_max, program.regions)),
                checks.groups,
                (0, *checks.counts),
                tuple(extra_sizes),
                [guard.size for guard in program.guards],
            ),
        )
        symbols = self.inputs.symbols
        self._ranges = [(symbols.index(name), range_) for name, range_ in program.ranges.items() if name in symbols]

    def sizes(self, shapes: Sequence[tuple[int, ...]], data_dependent_sizes: Sequence[int]) -> dict[str, int]:
        """Return the sizes of a call by name."""
        return dict(zip(self.symbols, (*self.inputs.of(shapes), *data_dependent_sizes), strict=True))

    def __call__(self, shapes: Sequence[tuple[int, ...]], data_dependent_sizes: Sequence[int] = ()) -> BoundSizes:
        """Bind the program to input shapes and data-dependent sizes; ones that are not known yet are 0.

        Raises ShapeError for inconsistent input shapes, and for a size outside of its range; raises ModelError if a launch is
        out of bounds.
        """
        try:
            sizes = (*self.inputs.of(shapes), *data_dependent_sizes)
            inputs, outputs, regions, groups, counts, extra_sizes, guarded_sizes = self._evaluate(*sizes)
        except (IndexError, ZeroDivisionError) as error:
            raise ShapeError(f"{self.program.sizes(shapes)}: a size is undefined for these inputs: {error}") from error
        if inputs != tuple(shapes) or not (
            all(sizes[k] in range_ for k, range_ in self._ranges)
            and all(guard.accepts(size) for guard, size in zip(self.program.guards, guarded_sizes, strict=True))
        ):
            self.program.sizes(shapes)
        if (
            min(counts) < 0
            or not -_MAX_ADDRESS_BYTES < min(extra_sizes, default=0) <= max(extra_sizes, default=0) < _MAX_ADDRESS_BYTES
        ):
            raise ModelError(f"sizes of {min(counts)}, {extra_sizes} for inputs of {shapes}")
        for buffer_sizes, loops, starts, ends in groups:
            if all(loops) and not 0 <= min(starts) <= max(ends) <= max(buffer_sizes):
                raise ModelError(
                    f"bytes {min(starts)} to {max(ends)} of a buffer of {max(buffer_sizes)} bytes, for inputs of {shapes}"
                )
        starts: list[int] = []
        end = 0
        for buffer_sizes in regions:
            starts.append(end)
            end += -(-max(buffer_sizes) // self.alignment) * self.alignment
        return BoundSizes(outputs, tuple(starts), end, extra_sizes)


def resolve_launches(instructions: Sequence[Instruction], kernels: Mapping[str, KernelSignature]) -> tuple[Instruction, ...]:
    """Return instructions whose launches have the byte sizes of their arguments; raises what `DynamicLaunch.resolve` raises."""

    def resolve(instruction: Instruction) -> Instruction:
        match instruction:
            case DynamicLaunch():
                return instruction.resolve(kernels)
            case Loop(body=body) | While(body=body):
                return replace(instruction, body=resolve_launches(body, kernels))
            case Branch(then=then, otherwise=otherwise):
                return replace(
                    instruction, then=resolve_launches(then, kernels), otherwise=resolve_launches(otherwise, kernels)
                )
            case _:
                return instruction

    return tuple(map(resolve, instructions))


def _counts(instructions: Sequence[Instruction]) -> Iterator[Size]:
    """Yield sizes that must not be negative: bytes of launch arguments, and iteration counts."""
    for instruction, _ in walk(instructions):
        match instruction:
            case DynamicLaunch(sizes=sizes):
                yield from sizes
            case Loop(count=count):
                yield count
            case _:
                pass


def _group_ranges(ranges: Iterable[ByteRange]) -> Iterator[tuple[int, list[Size], list[Size], list[Size]]]:
    """Group the ranges of a buffer by the loops around them: yield buffer, iteration counts, starts and ends."""
    groups: dict[tuple[int, frozenset[Size]], list[ByteRange]] = {}
    for range_ in ranges:
        groups.setdefault((range_.buffer, range_.loops), []).append(range_)
    for (buffer, loops), group in groups.items():
        yield buffer, list(loops), list(dict.fromkeys(p.start for p in group)), candidates_for_max(p.end for p in group)


def candidates_for_max(sizes: Iterable[Size]) -> list[Size]:
    """Return the sizes that may be the largest: symbolic ones once each, and the largest static one."""
    distinct = dict.fromkeys(sizes)
    static = [size for size in distinct if isinstance(size, int)]
    return [*(size for size in distinct if not isinstance(size, int)), *([max(static)] if static else [])]

"""The host program as plain data: instructions on buffers, for any device.

A program has slots, each of which holds an address: slot 0 is null (so that an argument can be an immediate), slot 1 is the
arena, followed by inputs, outputs, weights and regions of the arena, and then by loop slots, such as the current element of a
sequence. A *buffer reference* is a slot and a byte offset from the address in it; the arguments of launches are buffer
references.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import ShapeDtype, TensorInfo, aligned
from dlc.errors import ModelError, ShapeError
from dlc.runtime.collectives.mesh import RankPlacement
from dlc.runtime.python_ops.control import format_print
from dlc.runtime.python_ops.registry import OpSetting
from dlc.shapes.dims import Size, product, substitute
from dlc.shapes.guards import Guard, guards_by_last_symbol, violated_guard
from dlc.shapes.input_sizes import require_matching_inputs, solvable_axes
from dlc.shapes.ranges import SizeRange, require_in_range

NULL_SLOT, ARENA_SLOT, FIRST_INPUT_SLOT = 0, 1, 2
I64_BYTES = 8

BufferRef: TypeAlias = "tuple[int, int]"
# Returns `count` bytes at a buffer reference.
Read: TypeAlias = "Callable[[BufferRef, int], bytes]"


@dataclass(frozen=True)
class KernelSignature:
    """The parameters of a kernel.

    Attributes:
        sizes: The number of size parameters `s0`, `s1`, …
        bytes: The size in bytes of each buffer; it may depend on the size parameters.
    """

    sizes: int
    bytes: tuple[Size, ...]


@dataclass(frozen=True)
class Launch:
    """A kernel launch; without a kernel, a copy of `size_values[0]` bytes with the arguments destination and source.

    Attributes:
        sizes: The sizes of the arguments in bytes.
        size_values: The values of the kernel's size parameters.
    """

    kernel: str | None
    arguments: tuple[BufferRef, ...]
    sizes: tuple[Size, ...]
    size_values: tuple[Size, ...] = ()

    @staticmethod
    def of(
        kernel: str | None,
        arguments: tuple[BufferRef, ...],
        size_values: tuple[Size, ...],
        kernels: Mapping[str, KernelSignature],
    ) -> Launch:
        """Return a launch of one of `kernels`, whose signature has the sizes of the arguments.

        Raises ModelError for an unknown kernel, and for arguments that do not match its signature.
        """
        if kernel is None:
            expected, sizes = 1, size_values * 2
        elif kernel in kernels:
            expected, bytes_ = kernels[kernel].sizes, kernels[kernel].bytes
            sizes = tuple(substitute(size, kernel_sizes(size_values)) for size in bytes_)
        else:
            raise ModelError(f"a launch of {kernel}: there is no such kernel")
        got = len(size_values), len(arguments)
        if got != (expected, len(sizes)):
            raise ModelError(f"a launch of {kernel}: expected {expected} sizes and {len(sizes)} arguments, got {got}")
        return Launch(kernel, arguments, sizes, size_values)

    @property
    def bytes(self) -> int:
        """The total size of all arguments, which must be static."""
        return sum(self.static_sizes)

    @property
    def static_sizes(self) -> tuple[int, ...]:
        """The sizes of the arguments as integers. Raises UndecidableError for symbolic sizes."""
        return tuple(map(int, self.sizes))

    def evaluate_size(self, size: Size) -> int:
        """Return the value of a size expression of the kernel in this launch, whose sizes must be static."""
        return int(substitute(size, kernel_sizes(self.size_values)))

    def specialize(self, sizes: Mapping[str, int]) -> Launch:
        """Return this launch with its sizes specialized for the sizes of a call."""
        specialized = [[substitute(size, sizes) for size in symbolic] for symbolic in (self.sizes, self.size_values)]
        return Launch(self.kernel, self.arguments, *map(tuple, specialized))


def kernel_sizes(size_values: Sequence[Size]) -> dict[str, Size]:
    """Return the values of a kernel's size parameters by name."""
    return {f"s{k}": value for k, value in enumerate(size_values)}


@dataclass(frozen=True)
class CarriedSlot:
    """A loop-carried slot: its initial value, and its value for the next iteration. All are assigned in parallel."""

    slot: int
    first: BufferRef
    following: BufferRef


@dataclass(frozen=True)
class LoopSlot:
    """A slot that a loop advances: its first value, and the step in bytes per iteration."""

    slot: int
    first: tuple[int, Size]
    step: Size


@dataclass(frozen=True)
class Loop:
    """Run the body `count` times."""

    count: Size
    carried: tuple[CarriedSlot, ...]
    elements: tuple[LoopSlot, ...]
    body: tuple[Instruction, ...]


@dataclass(frozen=True)
class While:
    """Run the body while a byte is not 0. It is read at `begin` before the first iteration, and at `again` after each one."""

    begin: BufferRef
    again: BufferRef
    carried: tuple[CarriedSlot, ...]
    body: tuple[Instruction, ...]


@dataclass(frozen=True)
class Branch:
    """Run `then` if the byte at `condition` is not 0, else `otherwise`."""

    condition: BufferRef
    then: tuple[Instruction, ...]
    otherwise: tuple[Instruction, ...]


@dataclass(frozen=True)
class Parallel:
    """Run sections of launches concurrently, the launches of a section in order on one thread.

    Sections do not access memory that other sections write: their launches may also run in order. With more than `max_threads`
    threads, that is faster, with all threads for each launch.
    """

    sections: tuple[tuple[Launch, ...], ...]
    max_threads: int

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches of all sections, in an order in which they may run."""
        return tuple(launch for section in self.sections for launch in section)


@dataclass(frozen=True)
class Fail:
    """End the call with an error; the i64 at each reference of `values` is formatted into a `{}` field of the message."""

    message: str
    values: tuple[BufferRef, ...] = ()


@dataclass(frozen=True)
class SetSize:
    """Set the data-dependent size `symbol` to the i64 at `ref`."""

    symbol: str
    ref: BufferRef


@dataclass(frozen=True)
class HostArray:
    """An array that Python reads or writes."""

    ref: BufferRef
    shape: tuple[Size, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> Size:
        return product(self.shape) * self.dtype.itemsize

    def specialize(self, sizes: Mapping[str, int]) -> HostArray:
        """Return this array with its shape specialized for the sizes of a call."""
        return replace(self, shape=tuple(substitute(size, sizes) for size in self.shape))

    def read(self, read: Read, sizes: Mapping[str, int]) -> NDArray[Any]:
        """Return the elements."""
        shape = [size if isinstance(size, int) else int(substitute(size, sizes)) for size in self.shape]
        return np.frombuffer(read(self.ref, prod(shape) * self.dtype.itemsize), self.dtype).reshape(shape)


@dataclass(frozen=True)
class PrintArrays:
    """Print arrays as `format_parts` specify (see `control.format_print`)."""

    format_parts: tuple[str, ...]
    values: tuple[HostArray, ...]

    def run(self, read: Read, sizes: Mapping[str, int]) -> None:
        print(format_print(self.format_parts, [value.read(read, sizes) for value in self.values]))


class CallPrinter:
    """Prints the arrays of one call, each once, although a call may be restarted with a larger arena."""

    def __init__(self) -> None:
        self._reached = self._printed = 0

    def restart(self) -> None:
        """Prepare for the start or a restart of the call."""
        self._reached = 0

    def print_once(self, instruction: PrintArrays, read: Read, sizes: Mapping[str, int]) -> None:
        """Print arrays unless they were printed before a restart."""
        self._reached += 1
        if self._reached > self._printed:
            instruction.run(read, sizes)
            self._printed = self._reached


@dataclass(frozen=True)
class PythonCall:
    """An op that is implemented in Python (`python_calls.py`), by its name in `python_ops/`; `where` is its source location.

    `data_dependent_sizes` are the sizes that the shapes of its results define.
    """

    op: str
    settings: Mapping[str, OpSetting]
    where: str
    arguments: tuple[HostArray, ...]
    results: tuple[HostArray, ...]
    data_dependent_sizes: tuple[str, ...] = ()


Instruction: TypeAlias = "Launch | Loop | While | Branch | Parallel | Fail | SetSize | PrintArrays | PythonCall"
# Instructions for which native code returns to Python.
PythonInstruction: TypeAlias = "PrintArrays | PythonCall"


@dataclass(frozen=True)
class HostProgram:
    """A host program. Its sizes are polynomials in its symbols; a program without symbols has static sizes.

    The slots of weights are followed by those of the arena's regions, and by slots that loops set. Which buffers share memory
    is decided at compile time; the offsets of regions are computed when sizes are bound.

    Attributes:
        arena_bytes: The size of the first part of the arena, in which buffers have fixed offsets; the regions follow.
        regions: For each region of the arena, byte sizes; it is as large as the largest of them.
        loop_slots: The number of slots that loops set.
        ranges: The range of each restricted symbol.
        guards: Conditions on sizes, with what requires them; ranges imply some of them.
        donors: The input that each donated output overwrites; both by index.
        placement: The mesh of a program that ranks run; None for a program of one process.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    weights: tuple[TensorInfo, ...]
    instructions: tuple[Instruction, ...]
    arena_bytes: int = 0
    regions: tuple[tuple[Size, ...], ...] = ()
    loop_slots: int = 0
    ranges: Mapping[str, SizeRange] = field(default_factory=dict[str, SizeRange])
    guards: tuple[Guard, ...] = ()
    donors: Mapping[int, int] = field(default_factory=dict[int, int])
    placement: RankPlacement | None = None

    @cached_property
    def input_symbols(self) -> tuple[str, ...]:
        """The symbols that input axes determine, in the order of the inputs."""
        return tuple(solvable_axes([info.shape for info in self.inputs]))

    @cached_property
    def guards_by_symbol(self) -> dict[str, list[Guard]]:
        """The guards by the size that becomes known last of those that they depend on."""
        return guards_by_last_symbol(self.guards, self.symbols)

    @property
    def input_guards(self) -> list[Guard]:
        """The guards that do not depend on data-dependent sizes."""
        return [guard for guard in self.guards if guard.size.symbols() <= {*self.input_symbols}]

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

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """All symbols: those of the inputs, then the data-dependent sizes."""
        return *self.input_symbols, *self.data_dependent_sizes

    @property
    def initial_sizes(self) -> list[int]:
        """The values of data-dependent sizes before they are known."""
        return [self.ranges.get(symbol, SizeRange()).low for symbol in self.data_dependent_sizes]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches, each once, in program order."""
        return tuple(i for i, _ in walk(self.instructions) if isinstance(i, Launch))

    @property
    def runs(self) -> Counter[str | None]:
        """The number of runs of each kernel; a body with a dynamic or data-dependent trip count is counted once."""
        counts = Counter[str | None]()
        for instruction, times in walk(self.instructions):
            if isinstance(instruction, Launch):
                counts[instruction.kernel] += times
        return counts

    @property
    def first_region(self) -> int:
        """The slot of the first region."""
        return FIRST_INPUT_SLOT + len(self.inputs) + len(self.outputs) + len(self.weights)

    @property
    def slots(self) -> int:
        """The total number of slots."""
        return self.first_region + len(self.regions) + self.loop_slots

    @property
    def buffers(self) -> dict[int, tuple[Size, ...]]:
        """For each slot of a buffer, byte sizes; the buffer is as large as the largest of them."""
        tensors = (product(i.shape) * i.dtype.itemsize for i in (*self.inputs, *self.outputs, *self.weights))
        return dict(enumerate(((self.arena_bytes,), *((size,) for size in tensors), *self.regions), ARENA_SLOT))

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """Return the values of the symbols for these input shapes.

        Raises ShapeError for inconsistent input shapes, and for a size outside of its range.
        """
        types = [ShapeDtype(shape, info.dtype) for info, shape in zip(self.inputs, shapes, strict=True)]
        sizes = require_matching_inputs("the program", self.inputs, types)
        if (guard := violated_guard(self.guards, sizes)) is not None:
            text = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
            raise ShapeError(f"inputs {', '.join(map(str, self.inputs))} with {text}: {guard.description}")
        for info in self.inputs:
            require_in_range(f"input {info}", info.shape, sizes, self.ranges)
        return sizes


def walk(instructions: Sequence[Instruction], times: int = 1) -> Iterator[tuple[Instruction, int]]:
    """Yield every instruction with the number of times it runs; a dynamic trip count counts as 1."""
    for instruction in instructions:
        yield instruction, times
        match instruction:
            case Loop(count=count, body=body):
                yield from walk(body, times * count if isinstance(count, int) else times)
            case While(body=body):
                yield from walk(body, times)
            case Branch(then=then, otherwise=otherwise):
                yield from walk((*then, *otherwise), times)
            case Parallel():
                yield from walk(instruction.launches, times)
            case _:
                pass


def sequential(instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Return instructions with the launches of sections in order, so that all of them run one at a time."""
    result: list[Instruction] = []
    for instruction in instructions:
        match instruction:
            case Parallel():
                result += instruction.launches
            case Loop() | While():
                result.append(replace(instruction, body=sequential(instruction.body)))
            case Branch(condition, then, otherwise):
                result.append(Branch(condition, sequential(then), sequential(otherwise)))
            case _:
                result.append(instruction)
    return tuple(result)


def weight_array(info: TensorInfo, weights: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the array of a weight. Kernels rely on its size, so it is checked here.

    Raises ModelError for a weight that is missing or has another shape or dtype.
    """
    array = weights.get(info.name)
    if array is None:
        raise ModelError(
            f"weight {info.name}: missing in the weight store; dumped modules need the weights folder next to them"
        )
    if array.shape != info.shape or array.dtype != info.dtype:
        raise ModelError(f"weight {info.name}: expected {info}, the store has {array.dtype}{list(array.shape)}")
    return aligned(array)

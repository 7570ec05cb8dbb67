"""The host program as plain data: instructions on buffers, for any device.

A program has slots, each of which holds an address: slot 0 is null (so that an argument can be an immediate), slot 1 is the
arena, followed by inputs, outputs and weights, and then by loop slots, such as the current element of a sequence. A *buffer
reference* is a slot and a byte offset from the address in it; the arguments of launches are buffer references.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo, aligned
from dlc.dims import Size, product, substitute
from dlc.errors import ModelError
from dlc.runtime.python_ops.control import format_print
from dlc.runtime.python_ops.registry import OpSetting

NULL_SLOT, ARENA_SLOT, FIRST_INPUT_SLOT = 0, 1, 2
I64_BYTES = 8

BufferRef: TypeAlias = "tuple[int, int]"
# Returns `count` bytes at a buffer reference.
Read: TypeAlias = "Callable[[BufferRef, int], bytes]"


@dataclass(frozen=True)
class Launch:
    """A kernel launch; without a kernel, a copy of `size_values[0]` bytes with the arguments destination and source.

    Attributes:
        sizes: The sizes of the arguments in bytes.
        size_values: The values of the kernel's size parameters.
    """

    kernel: str | None
    arguments: tuple[BufferRef, ...]
    sizes: tuple[int, ...]
    size_values: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """The total size of all arguments."""
        return sum(self.sizes)

    def evaluate_size(self, size: Size) -> int:
        """Return the value of a size expression of the kernel in this launch."""
        return int(substitute(size, kernel_sizes(self.size_values)))


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
class DynamicLaunch:
    """A launch in a dynamic-shape program: the values of size parameters are symbolic.

    `sizes` are the byte sizes of the arguments, according to the kernel's signature; empty until the launch is resolved.
    """

    kernel: str | None
    arguments: tuple[BufferRef, ...]
    size_values: tuple[Size, ...]
    sizes: tuple[Size, ...] = ()

    def resolve(self, kernels: Mapping[str, KernelSignature]) -> DynamicLaunch:
        """Resolve this launch with the signatures of `kernels`. Raises ModelError if it does not match."""
        if self.kernel is None:
            expected, sizes = 1, self.size_values * 2
        elif self.kernel in kernels:
            kernel = kernels[self.kernel]
            expected, sizes = kernel.sizes, tuple(substitute(size, kernel_sizes(self.size_values)) for size in kernel.bytes)
        else:
            raise ModelError(f"a launch of {self.kernel}: there is no such kernel")
        got = len(self.size_values), len(self.arguments)
        if got != (expected, len(sizes)):
            raise ModelError(f"a launch of {self.kernel}: expected {expected} sizes and {len(sizes)} arguments, got {got}")
        return replace(self, sizes=sizes)

    def specialize(self, sizes: Mapping[str, int]) -> Launch:
        """Specialize this launch for the sizes of a call."""
        static = [[int(substitute(size, sizes)) for size in symbolic] for symbolic in (self.sizes, self.size_values)]
        return Launch(self.kernel, self.arguments, *map(tuple, static))


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
        shape = [int(size) for size in self.specialize(sizes).shape]
        return np.frombuffer(read(self.ref, prod(shape) * self.dtype.itemsize), self.dtype).reshape(shape)


@dataclass(frozen=True)
class PrintArrays:
    """Print arrays between `pieces` of text (see `control.format_print`)."""

    pieces: tuple[str, ...]
    values: tuple[HostArray, ...]

    def run(self, read: Read, sizes: Mapping[str, int]) -> None:
        print(format_print(self.pieces, [value.read(read, sizes) for value in self.values]))


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


Instruction: TypeAlias = "Launch | DynamicLaunch | Loop | While | Branch | Fail | SetSize | PrintArrays | PythonCall"
# Instructions for which native code returns to Python.
PythonInstruction: TypeAlias = "PrintArrays | PythonCall"


@dataclass(frozen=True)
class HostProgram:
    """A static-shape host program.

    Attributes:
        slots: The total number of slots.
        donors: The input that each donated output overwrites; both by index.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    weights: tuple[TensorInfo, ...]
    arena_bytes: int
    slots: int
    instructions: tuple[Instruction, ...]
    donors: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches, each once, in program order."""
        return tuple(i for i, _ in walk(self.instructions) if isinstance(i, Launch))

    @property
    def runs(self) -> Counter[str | None]:
        """The number of runs of each kernel; a body with a dynamic or data-dependent trip count is counted once."""
        return count_runs(self.instructions)

    @property
    def buffers(self) -> list[int]:
        """The byte sizes of the buffers in the first slots."""
        return [0, self.arena_bytes, *(_bytes_of(info) for info in (*self.inputs, *self.outputs, *self.weights))]


def count_runs(instructions: Sequence[Instruction]) -> Counter[str | None]:
    """Count the runs of each kernel; a body with a dynamic or data-dependent trip count is counted once."""
    counts = Counter[str | None]()
    for instruction, times in walk(instructions):
        if isinstance(instruction, Launch | DynamicLaunch):
            counts[instruction.kernel] += times
    return counts


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
            case _:
                pass


def _bytes_of(info: TensorInfo) -> int:
    return prod(int(size) for size in info.shape) * info.dtype.itemsize


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

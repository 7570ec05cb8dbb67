"""The host program as plain data: what runs in which order on which buffers, whichever device runs it.

A program has a file of slots, each of which holds an address: slot 0 is nothing (so that an argument can be a number), 1 the
arena, then come inputs, outputs and weights, and behind these the slots of what changes while the program runs, such as the
element of a sequence that a loop is at. A *place* is a slot and an offset in bytes from what it holds; an argument of a launch
is a place.
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
from dlc.runtime.python_ops.control import shown
from dlc.runtime.python_ops.selection import Setting

NOTHING, ARENA, FIRST_INPUT = 0, 1, 2  # numbers of slots
NUMBER_BYTES = 8  # of a number in a message, or that is a size

Place: TypeAlias = "tuple[int, int]"
# Gives so many bytes at a place.
Read: TypeAlias = "Callable[[Place, int], bytes]"


@dataclass(frozen=True)
class Launch:
    """A kernel, its arguments as places, their sizes in bytes, and the numbers that it takes besides.

    No kernel is a copy: target, source, and the number of bytes as its only number.
    """

    kernel: str | None
    arguments: tuple[Place, ...]
    sizes: tuple[int, ...]
    numbers: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of all arguments together."""
        return sum(self.sizes)

    def number(self, size: Size) -> int:
        """What a size of the kernel is in this launch."""
        return int(substitute(size, kernel_sizes(self.numbers)))


@dataclass(frozen=True)
class OpenKernel:
    """What a kernel makes of its sizes `s0`, `s1`, …: the bytes of each of its buffers."""

    sizes: int
    bytes: tuple[Size, ...]


@dataclass(frozen=True)
class OpenLaunch:
    """A launch in a program whose sizes come with a call: numbers are sizes.

    `sizes`, those of the arguments in bytes, are what the kernel makes of its numbers; before it is known, there are none.
    """

    kernel: str | None
    arguments: tuple[Place, ...]
    numbers: tuple[Size, ...]
    sizes: tuple[Size, ...] = ()

    def of(self, kernels: Mapping[str, OpenKernel]) -> OpenLaunch:
        """This launch of one of `kernels`. Raises ModelError for one that is of none of them."""
        if self.kernel is None:
            expected, sizes = 1, self.numbers * 2
        elif self.kernel in kernels:
            kernel = kernels[self.kernel]
            expected, sizes = kernel.sizes, tuple(substitute(size, kernel_sizes(self.numbers)) for size in kernel.bytes)
        else:
            raise ModelError(f"a launch of {self.kernel}: there is no such kernel")
        got = len(self.numbers), len(self.arguments)
        if got != (expected, len(sizes)):
            raise ModelError(f"a launch of {self.kernel}: expected {expected} sizes and {len(sizes)} arguments, got {got}")
        return replace(self, sizes=sizes)

    def at(self, sizes: Mapping[str, int]) -> Launch:
        """This launch for the sizes of a call."""
        known = [[int(substitute(size, sizes)) for size in those] for those in (self.sizes, self.numbers)]
        return Launch(self.kernel, self.arguments, *map(tuple, known))


def kernel_sizes(numbers: Sequence[Size]) -> dict[str, Size]:
    """The sizes of a kernel by the names that it has for them."""
    return {f"s{k}": number for k, number in enumerate(numbers)}


@dataclass(frozen=True)
class Carried:
    """A slot that a loop hands on: what it is in the first step, and from one step to the next; all at once."""

    slot: int
    first: Place
    following: Place


@dataclass(frozen=True)
class Element:
    """A slot that a loop moves: where it is in the first step, and by how many bytes it moves from one step to the next."""

    slot: int
    first: tuple[int, Size]
    step: Size


@dataclass(frozen=True)
class Loop:
    """Runs its body `count` times."""

    count: Size
    carried: tuple[Carried, ...]
    elements: tuple[Element, ...]
    body: tuple[Instruction, ...]


@dataclass(frozen=True)
class While:
    """Runs its body while the byte at a place is not 0: `begin` before the first step, `again` after each."""

    begin: Place
    again: Place
    carried: tuple[Carried, ...]
    body: tuple[Instruction, ...]


@dataclass(frozen=True)
class Branch:
    """Runs `then` if the byte at a place is not 0, else `otherwise`."""

    condition: Place
    then: tuple[Instruction, ...]
    otherwise: tuple[Instruction, ...]


@dataclass(frozen=True)
class Fail:
    """Ends the call with an error, whose message has the i64 at these places where its last `{}` are."""

    message: str
    numbers: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Decide:
    """Makes the i64 at a place the size `symbol` of what follows."""

    symbol: str
    place: Place


@dataclass(frozen=True)
class HostArray:
    """An array that Python reads or writes: where it is, and what."""

    place: Place
    shape: tuple[Size, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> Size:
        return product(self.shape) * self.dtype.itemsize

    def at(self, sizes: Mapping[str, int]) -> HostArray:
        """This array for the sizes of a call."""
        return replace(self, shape=tuple(substitute(size, sizes) for size in self.shape))

    def read(self, read: Read, sizes: Mapping[str, int]) -> NDArray[Any]:
        """What it holds."""
        shape = [int(size) for size in self.at(sizes).shape]
        return np.frombuffer(read(self.place, prod(shape) * self.dtype.itemsize), self.dtype).reshape(shape)


@dataclass(frozen=True)
class Print:
    """Prints arrays between `pieces` of a text (`control.shown`)."""

    pieces: tuple[str, ...]
    values: tuple[HostArray, ...]

    def run(self, read: Read, sizes: Mapping[str, int]) -> None:
        print(shown(self.pieces, [value.read(read, sizes) for value in self.values]))


class Printing:
    """What a call prints: once, though it may begin again where data decides that it takes more memory."""

    def __init__(self) -> None:
        self.met = self.done = 0

    def begin(self) -> None:
        """Says that the call begins, for the first time or again."""
        self.met = 0

    def show(self, what: Print, read: Read, sizes: Mapping[str, int]) -> None:
        """Prints what was not printed before."""
        self.met += 1
        if self.met > self.done:
            what.run(read, sizes)
            self.done = self.met


@dataclass(frozen=True)
class Compute:
    """An op that Python computes (`computing.py`), by its name in `python_ops/`; `where` is its place in the model.

    `decided` are the sizes of its results that are not known before.
    """

    op: str
    settings: Mapping[str, Setting]
    where: str
    arguments: tuple[HostArray, ...]
    results: tuple[HostArray, ...]
    decided: tuple[str, ...] = ()


Instruction: TypeAlias = "Launch | OpenLaunch | Loop | While | Branch | Fail | Decide | Print | Compute"
# What only Python does: native code comes back to it.
Hosted: TypeAlias = "Print | Compute"


@dataclass(frozen=True)
class HostProgram:
    """What runs in which order on which buffers: plain data. `slots` is how many there are in all.

    `donors`: the outputs that are written over inputs, and those, by number; what a caller gives for them is overwritten.
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
        """The launches in the order of the program's text, each once."""
        return tuple(i for i, _ in walk(self.instructions) if isinstance(i, Launch))

    @property
    def runs(self) -> Counter[str | None]:
        """How often each kernel runs, as far as sizes tell: a body that data repeats counts once."""
        return runs_of(self.instructions)

    @property
    def buffers(self) -> list[int]:
        """The sizes in bytes of what the first slots hold."""
        return [0, self.arena_bytes, *(_bytes_of(info) for info in (*self.inputs, *self.outputs, *self.weights))]


def runs_of(instructions: Sequence[Instruction]) -> Counter[str | None]:
    """How often each kernel runs, as far as sizes tell: a body that data or an open size repeats counts once."""
    counts = Counter[str | None]()
    for instruction, times in walk(instructions):
        if isinstance(instruction, Launch | OpenLaunch):
            counts[instruction.kernel] += times
    return counts


def walk(instructions: Sequence[Instruction], times: int = 1) -> Iterator[tuple[Instruction, int]]:
    """Every instruction, and how often it runs as far as sizes tell."""
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
    """The array of a weight; kernels trust its size, so that a wrong one must not pass.

    Raises ModelError for a weight that the store lacks or has in another shape or dtype.
    """
    array = weights.get(info.name)
    if array is None:
        raise ModelError(f"weight {info.name}: the store does not have it; a dump has its own beside the modules")
    if array.shape != info.shape or array.dtype != info.dtype:
        raise ModelError(f"weight {info.name}: expected {info}, the store has {array.dtype}{list(array.shape)}")
    return aligned(array)

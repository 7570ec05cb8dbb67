"""The host program as plain data: what runs in which order on which buffers, whichever device runs it.

A program has a file of slots, each of which holds an address: slot 0 is nothing (so that an argument can be a number), 1 the
arena, then come inputs, outputs and weights, and behind these the slots of what changes while the program runs, such as the
element of a sequence that a loop is at. A *place* is a slot and an offset in bytes from what it holds; an argument of a launch
is a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.arrays import TensorInfo, aligned
from dlc.errors import ModelError

NOTHING, ARENA, FIRST_INPUT = 0, 1, 2  # numbers of slots

Place: TypeAlias = "tuple[int, int]"


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
    first: Place
    step: int


@dataclass(frozen=True)
class Loop:
    """Runs its body `count` times."""

    count: int
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
    """Ends the call with an error."""

    message: str


Instruction: TypeAlias = "Launch | Loop | While | Branch | Fail"


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
        counts = Counter[str | None]()
        for instruction, times in walk(self.instructions):
            if isinstance(instruction, Launch):
                counts[instruction.kernel] += times
        return counts

    @property
    def buffers(self) -> list[int]:
        """The sizes in bytes of what the first slots hold."""
        return [0, self.arena_bytes, *(_bytes_of(info) for info in (*self.inputs, *self.outputs, *self.weights))]


def walk(instructions: Sequence[Instruction], times: int = 1) -> Iterator[tuple[Instruction, int]]:
    """Every instruction, and how often it runs as far as sizes tell."""
    for instruction in instructions:
        yield instruction, times
        match instruction:
            case Loop(count=count, body=body):
                yield from walk(body, times * count)
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
        raise ModelError(f"weight {info.name}: the store does not have it")
    if array.shape != info.shape or array.dtype != info.dtype:
        raise ModelError(f"weight {info.name}: expected {info}, the store has {array.dtype}{list(array.shape)}")
    return aligned(array)


# Where a slot may point: for each buffer, by number, the least and the largest offset.
_Range: TypeAlias = "dict[int, tuple[int, int]]"


def check_program(host: HostProgram, kernels: Collection[str]) -> None:
    """Raises ModelError unless every launch runs one of `kernels`, or copies, on parts of the program's buffers, and loops
    move within them.

    What a kernel's code does within the parts that it is given is not seen from here.
    """
    buffers = host.buffers
    for output, donor in host.donors.items():
        pair = [infos[k] for infos, k in ((host.outputs, output), (host.inputs, donor)) if k < len(infos)]
        if len(pair) < 2 or (pair[0].shape, pair[0].dtype) != (pair[1].shape, pair[1].dtype):
            raise ModelError(f"output {output} cannot be written over input {donor}")
    if len(set(host.donors.values())) < len(host.donors):
        raise ModelError("an input cannot be two outputs")
    if host.slots < len(buffers):
        raise ModelError(f"{host.slots} slots for {len(buffers)} buffers")
    known: dict[int, _Range] = {k: {k: (0, 0)} for k in range(1, len(buffers))}
    _Checker(buffers, host.slots, kernels).block(host.instructions, known)


# Loops in loops are gone through again and again until it is known where slots point; no program comes near.
_MOST_CHECKS = 100_000


class _Checker:
    def __init__(self, buffers: Sequence[int], slots: int, kernels: Collection[str]) -> None:
        self.buffers = buffers
        self.slots = slots
        self.kernels = kernels
        self.left = _MOST_CHECKS

    def block(self, instructions: Sequence[Instruction], known: dict[int, _Range]) -> None:
        """Checks instructions that find the slots so; leaves `known` as they leave the slots."""
        for instruction in instructions:
            self.left -= 1
            if self.left < 0:
                raise ModelError("loops in loops, too deep to be checked")
            match instruction:
                case Launch():
                    self.launch(instruction, known)
                case Loop():
                    self.loop(instruction, known)
                case While():
                    self.require(instruction.begin, 1, known, "a condition")
                    self.repeated(instruction, known)
                case Branch():
                    self.require(instruction.condition, 1, known, "a condition")
                    after = [dict(known), dict(known)]
                    self.block(instruction.then, after[0])
                    self.block(instruction.otherwise, after[1])
                    known.update({slot: _either(*(a.get(slot, {}) for a in after)) for slot in {**after[0], **after[1]}})
                case Fail():
                    pass

    def launch(self, launch: Launch, known: Mapping[int, _Range]) -> None:
        what = f"a launch of {launch.kernel or 'a copy'}"
        if launch.kernel is None:
            if len(launch.arguments) != 2 or launch.sizes != launch.numbers * 2:
                raise ModelError(f"{what}: its arguments are no target and source of one size")
        elif launch.kernel not in self.kernels:
            raise ModelError(f"{what}: there is no such kernel")
        if len(launch.arguments) != len(launch.sizes):
            raise ModelError(f"{what}: {len(launch.arguments)} arguments of {len(launch.sizes)} sizes")
        for part, size in zip(launch.arguments, launch.sizes, strict=True):
            self.require(part, size, known, what)

    def loop(self, loop: Loop, known: dict[int, _Range]) -> None:
        for element in loop.elements:
            self.own(element.slot)
            moved = element.step * max(0, loop.count - 1)
            start = self.range(element.first, known)
            known[element.slot] = {b: (low + min(0, moved), high + max(0, moved)) for b, (low, high) in start.items()}
        self.repeated(loop, known)

    def repeated(self, loop: Loop | While, known: dict[int, _Range]) -> None:
        """Checks a body whose carried slots are what they are first, or what any step leaves."""
        for carried in loop.carried:
            self.own(carried.slot)
            known[carried.slot] = self.range(carried.first, known)
        # Each round, what is handed on reaches one more slot.
        for _ in range(len(loop.carried) + 2):
            inside = dict(known)
            self.block(loop.body, inside)
            if isinstance(loop, While):
                self.require(loop.again, 1, inside, "a condition")
            after = {c.slot: _either(known[c.slot], self.range(c.following, inside)) for c in loop.carried}
            if all(known[slot] == range_ for slot, range_ in after.items()):
                return
            known.update(after)
        raise ModelError("a loop's carried slots move on without end")

    def own(self, slot: int) -> None:
        if not len(self.buffers) <= slot < self.slots:
            raise ModelError(f"slot {slot} is none that a loop may set")

    def range(self, place: Place, known: Mapping[int, _Range]) -> _Range:
        slot, offset = place
        if not known.get(slot):
            raise ModelError(f"slot {slot} holds no address")
        return {buffer: (low + offset, high + offset) for buffer, (low, high) in known[slot].items()}

    def require(self, place: Place, size: int, known: Mapping[int, _Range], what: str) -> None:
        """Raises ModelError unless `size` bytes from a place on are within a buffer, wherever it may point."""
        for buffer, (low, high) in self.range(place, known).items():
            if not 0 <= low <= high + size <= self.buffers[buffer]:
                raise ModelError(f"{what}: {size} bytes at {place} are no part of the buffers")


def _either(x: _Range, y: _Range) -> _Range:
    """Where a slot may point that is one or the other."""
    both = {**x, **y}
    for buffer in x.keys() & y.keys():
        both[buffer] = min(x[buffer][0], y[buffer][0]), max(x[buffer][1], y[buffer][1])
    return both

"""The host program as the table of records that native code executes (runtime.ll says what each record does).

Behind the slots of the program come some for the table alone: counters of loops, and what waits while slots change places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dlc.dims import Dim, Size, substitute
from dlc.errors import CompileError
from dlc.runtime.program.host_program import (
    NOTHING,
    Branch,
    Compute,
    Decide,
    Fail,
    Hosted,
    Instruction,
    Launch,
    Loop,
    OpenLaunch,
    Place,
    Print,
    While,
    kernel_sizes,
)

# A launch on less memory than this is over before another thread has joined in: about half a microsecond of work.
SMALL_BYTES = 32 << 10
# How many bytes one task of a copy moves; `dlc_copy` in runtime.ll counts by it.
COPY_BYTES = 64 << 10
_STOP, _MOVE, _COUNT, _UNLESS, _JUMP, _ADD = range(6)

# A grid of a kernel, or the task that copies memory if it is of none.
Task: TypeAlias = "tuple[str | None, int]"


@dataclass
class Table:
    """The records, in words; `tasks` says at which of them launches begin, whose word is to be how far away their task is, and
    `ends` of which launch a record is the last that ends at a word.

    Where sizes come with a call, some slots hold numbers: `sizes`, and of grids the number of tasks, which `work` has with the
    bytes that a launch is given (`tasks_word`). So one table serves all sizes.
    """

    slots: int
    words: list[int] = field(default_factory=list[int])
    tasks: dict[int, Task] = field(default_factory=dict[int, Task])
    ends: dict[int, Launch | OpenLaunch] = field(default_factory=dict[int, Launch | OpenLaunch])
    sizes: dict[Size, int] = field(default_factory=dict[Size, int])
    work: dict[tuple[Size, Size], int] = field(default_factory=dict[tuple[Size, Size], int])
    # What codes mean: code -k is stop k - 1, and after what is printed, computed or decided the records go on at its word.
    stops: list[tuple[Fail | Decide | Hosted, int]] = field(default_factory=list["tuple[Fail | Decide | Hosted, int]"])

    def placed(self, place: int, task: Callable[[Task], int]) -> list[int]:
        """The records as they are at a place, from which on `task` says where the code of one is."""
        words = list(self.words)
        for at, of in self.tasks.items():
            words[at] = task(of) - (place + 8 * at)
        return words


def assemble(instructions: Sequence[Instruction], slots: int, kernels: Mapping[str, Sequence[Size]]) -> Table:
    """The table of a program with so many slots; `kernels` say of each grid how many tasks it has, in the kernel's sizes."""
    assembler = _Assembler(slots, kernels)
    assembler.block(instructions)
    assembler.emit(_STOP, 0)
    return assembler.table


def tasks_word(tasks: int, bytes: int) -> int:
    """What a record says of a grid: its number of tasks, below 0 if the launch is too little work to share.

    Raises CompileError for more tasks than the pool counts to.
    """
    if not 0 <= tasks < 1 << 31:
        raise CompileError(f"a grid of {tasks} tasks on {bytes} bytes; the pool counts to {(1 << 31) - 1}")
    return -tasks if bytes < SMALL_BYTES else tasks


class _Assembler:
    def __init__(self, slots: int, kernels: Mapping[str, Sequence[Size]]) -> None:
        self.table = Table(slots)
        self.kernels = kernels

    def block(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Launch() | OpenLaunch():
                    self.launch(instruction)
                case Loop():
                    self.loop(instruction)
                case While():
                    self.repeat(instruction)
                case Branch():
                    self.branch(instruction)
                case Fail() | Decide() | Print() | Compute():
                    self.emit(_STOP, -len(self.table.stops) - 1)
                    self.table.stops.append((instruction, len(self.table.words)))

    def launch(self, launch: Launch | OpenLaunch) -> None:
        if launch.kernel is None:
            grids: Sequence[Size] = (-(-launch.numbers[0] // COPY_BYTES),)
        else:
            sizes = kernel_sizes(launch.numbers)
            grids = [substitute(tasks, sizes) for tasks in self.kernels[launch.kernel]]
        given = (*launch.arguments, *map(self.number, launch.numbers))
        arguments = [word for argument in given for word in argument]
        for grid, tasks in enumerate(grids):
            self.table.tasks[len(self.table.words)] = (launch.kernel, grid)
            self.emit(0, *self.tasks(tasks, sum(launch.sizes)), len(given), *arguments)
        if grids:
            self.table.ends[len(self.table.words)] = launch

    def number(self, size: Size) -> Place:
        """Where a size is."""
        if isinstance(size, int):
            return NOTHING, size
        if size not in self.table.sizes:
            self.table.sizes[size] = self.scratch()
        return self.table.sizes[size], 0

    def tasks(self, tasks: Size, bytes: Size) -> Place:
        """Where the number of tasks is that a launch on so many bytes has."""
        if tasks == 1:
            return NOTHING, 1  # nothing to share, on however many bytes
        if isinstance(tasks, int) and isinstance(bytes, int):
            return NOTHING, tasks_word(tasks, bytes)
        if (tasks, bytes) not in self.table.work:
            self.table.work[tasks, bytes] = self.scratch()
        return self.table.work[tasks, bytes], 0

    def loop(self, loop: Loop) -> None:
        counter = self.scratch()
        self.move([(c.slot, c.first) for c in loop.carried])
        if loop.count == 0:
            return
        firsts = [self.place(e.first) for e in loop.elements]
        self.move([(e.slot, place) for e, (place, _) in zip(loop.elements, firsts, strict=True)])
        for element, (_, more) in zip(loop.elements, firsts, strict=True):
            if more != 0:
                self.advance(element.slot, more)
        count, more = self.number(loop.count)
        if isinstance(loop.count, int):
            self.emit(_MOVE, counter, count, more)
        else:
            # There may be no turn at all: counting comes first, from one more.
            self.emit(_MOVE, counter, count, 1)
            self.emit(_JUMP, 0)
        begin = len(self.table.words)
        self.block(loop.body)
        self.move([(c.slot, c.following) for c in loop.carried])
        for element in loop.elements:
            self.advance(element.slot, element.step)
        if not isinstance(loop.count, int):
            self.table.words[begin - 1] = len(self.table.words) - (begin - 2)
        self.emit(_COUNT, counter, begin - len(self.table.words))

    def place(self, place: tuple[int, Size]) -> tuple[Place, Size]:
        """A place, and how far from there it is meant."""
        slot, offset = place
        return ((slot, offset), 0) if isinstance(offset, int) else ((slot, 0), offset)

    def advance(self, slot: int, distance: Size) -> None:
        """Moves what a slot holds."""
        if isinstance(distance, Dim):
            self.emit(_ADD, slot, self.number(distance)[0])
        else:
            self.emit(_MOVE, slot, slot, distance)

    def repeat(self, loop: While) -> None:
        condition = self.scratch()
        self.move([(c.slot, c.first) for c in loop.carried])
        self.emit(_MOVE, condition, *loop.begin)
        begin = len(self.table.words)
        self.emit(_UNLESS, condition, 0, 0)
        self.block(loop.body)
        # Where the condition is, before slots change places.
        self.emit(_MOVE, condition, *loop.again)
        self.move([(c.slot, c.following) for c in loop.carried])
        self.emit(_JUMP, begin - len(self.table.words))
        self.table.words[begin + 3] = len(self.table.words) - begin

    def branch(self, branch: Branch) -> None:
        begin = len(self.table.words)
        self.emit(_UNLESS, *branch.condition, 0)
        self.block(branch.then)
        middle = len(self.table.words)
        self.emit(_JUMP, 0)
        self.table.words[begin + 3] = len(self.table.words) - begin
        self.block(branch.otherwise)
        if len(self.table.words) in self.table.ends:
            # Who comes from the other body comes behind this, and is not told that the last launch of this one has run.
            self.emit(_MOVE, self.scratch(), NOTHING, 0)
        self.table.words[middle + 1] = len(self.table.words) - middle

    def move(self, moves: Sequence[tuple[int, Place]]) -> None:
        """Sets slots to places, all at once: what is overwritten before it is read waits elsewhere."""
        overwritten: set[int] = set()
        ready: list[tuple[int, Place]] = []
        for slot, (source, offset) in moves:
            if source in overwritten:
                waiting = self.scratch()
                self.emit(_MOVE, waiting, source, offset)
                source, offset = waiting, 0
            overwritten.add(slot)
            if (source, offset) != (slot, 0):
                ready.append((slot, (source, offset)))
        for slot, place in ready:
            self.emit(_MOVE, slot, *place)

    def emit(self, *words: int) -> None:
        self.table.words += words

    def scratch(self) -> int:
        """A slot of the table's own."""
        self.table.slots += 1
        return self.table.slots - 1

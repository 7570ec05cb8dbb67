"""The bytecode of a host program, which native code interprets (runtime.ll documents the instruction set).

Terms, here and in the files that read bytecode:

    record table   the bytecode of a program: 64-bit words
    record         one encoded instruction: an opcode and its operands; an `Instruction` of the host program becomes one or
                   more records, a launch one record per grid
    stop           a record at which native code returns to Python; its code selects what Python does (0: the program ends)
    slot           a register of the interpreter; it holds an address or a size

The slots of the program are followed by slots of the bytecode itself: loop counters, and temporaries for parallel moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dlc.runtime.collectives.native_calls import COLLECTIVE_BYTES, COLLECTIVES
from dlc.runtime.program.host_program import (
    NULL_SLOT,
    Branch,
    BufferRef,
    Fail,
    Instruction,
    Launch,
    Loop,
    Parallel,
    PrintArrays,
    PythonCall,
    PythonInstruction,
    SetSize,
    While,
    kernel_sizes,
)
from dlc.shapes.dims import Dim, Size, substitute
from dlc.shapes.size_code import task_count_word

# Bytes that one task of a copy launch copies; `dlc_copy` in runtime.ll has the same constant.
COPY_TASK_BYTES = 64 << 10
_RETURN, _MOVE, _COUNT, _UNLESS, _JUMP, _ADD, _PARALLEL, _COLLECTIVE = range(8)

# A kernel and the index of one of its grids; None: the memory-copy task.
Task: TypeAlias = "tuple[str | None, int]"


@dataclass
class RecordTable:
    """The bytecode of a host program.

    Attributes:
        slots: The number of slots.
        words: The records.
        tasks: The task of each launch record, by the index of its first word, which `relocate` sets to the task's address.
        launch_ends: The launches, by the index of the word after their last record.
        sizes: The slots of symbolic sizes.
        work: The slots of symbolic task counts (`task_count_word`), by number of tasks and bytes.
        collectives: The collectives, in the order of the table whose address is in `collectives_slot`.
        collectives_slot: The slot of the address of a table of native calls (runtime/collectives/native_calls.py), or of null:
            then Python runs the collectives.
        stops: The instructions that Python executes, and the index of the word at which execution continues. Stop code -k
            refers to entry k - 1.
    """

    slots: int
    words: list[int] = field(default_factory=list[int])
    tasks: dict[int, Task] = field(default_factory=dict[int, Task])
    launch_ends: dict[int, Launch] = field(default_factory=dict[int, Launch])
    sizes: dict[Size, int] = field(default_factory=dict[Size, int])
    work: dict[tuple[Size, Size], int] = field(default_factory=dict[tuple[Size, Size], int])
    collectives: list[PythonCall] = field(default_factory=list[PythonCall])
    collectives_slot: int | None = None
    stops: list[tuple[Fail | SetSize | PythonInstruction, int]] = field(
        default_factory=list["tuple[Fail | SetSize | PythonInstruction, int]"]
    )

    def relocate(self, base: int, address_of_task: Callable[[Task], int]) -> list[int]:
        """Return the bytecode for a base address; `address_of_task` returns the address of a task's code."""
        words = list(self.words)
        for index, record_task in self.tasks.items():
            words[index] = address_of_task(record_task) - (base + 8 * index)
        return words


def assemble_records(instructions: Sequence[Instruction], slots: int, kernels: Mapping[str, Sequence[Size]]) -> RecordTable:
    """Assemble the bytecode of a program with `slots` slots.

    `kernels` maps each kernel to the number of tasks of each grid, in terms of the kernel's size parameters.
    """
    assembler = _RecordAssembler(slots, kernels)
    assembler.block(instructions)
    assembler.emit(_RETURN, 0)
    return assembler.table


class _RecordAssembler:
    def __init__(self, slots: int, kernels: Mapping[str, Sequence[Size]]) -> None:
        self.table = RecordTable(slots)
        self.kernels = kernels

    def block(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Launch():
                    self.launch(instruction)
                case Loop():
                    self.loop(instruction)
                case While():
                    self.repeat(instruction)
                case Branch():
                    self.branch(instruction)
                case Parallel():
                    self.parallel(instruction)
                case PythonCall(op=op) if op in COLLECTIVES:
                    self.collective(instruction)
                case Fail() | SetSize() | PrintArrays() | PythonCall():
                    self.emit(_RETURN, -len(self.table.stops) - 1)
                    self.table.stops.append((instruction, len(self.table.words)))

    def launch(self, launch: Launch) -> None:
        if launch.kernel is None:
            grids: Sequence[Size] = (-(-launch.size_values[0] // COPY_TASK_BYTES),)
        else:
            sizes = kernel_sizes(launch.size_values)
            grids = [substitute(tasks, sizes) for tasks in self.kernels[launch.kernel]]
        references = (*launch.arguments, *map(self.size_reference, launch.size_values))
        arguments = [word for argument in references for word in argument]
        for grid, tasks in enumerate(grids):
            self.table.tasks[len(self.table.words)] = (launch.kernel, grid)
            self.emit(0, *self.tasks(tasks, sum(launch.sizes)), len(references), *arguments)
        if grids:
            self.table.launch_ends[len(self.table.words)] = launch

    def size_reference(self, size: Size) -> BufferRef:
        """Return an operand for a size: an immediate or a slot."""
        if isinstance(size, int):
            return NULL_SLOT, size
        if size not in self.table.sizes:
            self.table.sizes[size] = self.scratch()
        return self.table.sizes[size], 0

    def tasks(self, tasks: Size, bytes: Size) -> BufferRef:
        """Return an operand for the task-count word of a launch; `bytes` is the total size of its arguments."""
        if tasks == 1:
            return NULL_SLOT, 1  # One task cannot be parallelized.
        if isinstance(tasks, int) and isinstance(bytes, int):
            return NULL_SLOT, task_count_word(tasks, bytes)
        if (tasks, bytes) not in self.table.work:
            self.table.work[tasks, bytes] = self.scratch()
        return self.table.work[tasks, bytes], 0

    def loop(self, loop: Loop) -> None:
        counter = self.scratch()
        self.move([(c.slot, c.first) for c in loop.carried])
        if loop.count == 0:
            return
        firsts = [self.split_reference(e.first) for e in loop.elements]
        self.move([(e.slot, reference) for e, (reference, _) in zip(loop.elements, firsts, strict=True)])
        for element, (_, remainder) in zip(loop.elements, firsts, strict=True):
            if remainder != 0:
                self.advance(element.slot, remainder)
        count_slot, remainder = self.size_reference(loop.count)
        if isinstance(loop.count, int):
            self.emit(_MOVE, counter, count_slot, remainder)
        else:
            # The loop may have no iterations: decrement and test first, starting from count + 1.
            self.emit(_MOVE, counter, count_slot, 1)
            self.emit(_JUMP, 0)
        begin = len(self.table.words)
        self.block(loop.body)
        self.move([(c.slot, c.following) for c in loop.carried])
        for element in loop.elements:
            self.advance(element.slot, element.step)
        if not isinstance(loop.count, int):
            self.table.words[begin - 1] = len(self.table.words) - (begin - 2)
        self.emit(_COUNT, counter, begin - len(self.table.words))

    def split_reference(self, reference: tuple[int, Size]) -> tuple[BufferRef, Size]:
        """Split a reference into a static reference and a symbolic offset from it."""
        slot, offset = reference
        return ((slot, offset), 0) if isinstance(offset, int) else ((slot, 0), offset)

    def advance(self, slot: int, distance: Size) -> None:
        """Add a distance to the address in a slot."""
        if isinstance(distance, Dim):
            self.emit(_ADD, slot, self.size_reference(distance)[0])
        else:
            self.emit(_MOVE, slot, slot, distance)

    def repeat(self, loop: While) -> None:
        condition = self.scratch()
        self.move([(c.slot, c.first) for c in loop.carried])
        self.emit(_MOVE, condition, *loop.begin)
        begin = len(self.table.words)
        self.emit(_UNLESS, condition, 0, 0)
        self.block(loop.body)
        # Save the condition's address before the carried slots are assigned.
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
        if len(self.table.words) in self.table.launch_ends:
            # Insert a no-op, so that the other branch does not jump to the word in `launch_ends`.
            self.emit(_MOVE, self.scratch(), NULL_SLOT, 0)
        self.table.words[middle + 1] = len(self.table.words) - middle

    def parallel(self, parallel: Parallel) -> None:
        begin, count = len(self.table.words), len(parallel.sections)
        self.emit(_PARALLEL, count, parallel.max_threads, 0, *[0] * count)
        for number, section in enumerate(parallel.sections):
            self.table.words[begin + 4 + number] = len(self.table.words) - begin
            self.block(section)
            self.emit(_RETURN, 0)
        self.table.words[begin + 3] = len(self.table.words) - begin

    def collective(self, call: PythonCall) -> None:
        """Emit a collective, which stops if there is no native call for it."""
        table = self.table
        if table.collectives_slot is None:
            table.collectives_slot = self.scratch()
        operand = call.arguments[0].ref if call.arguments else (NULL_SLOT, 0)
        offset = len(table.collectives) * COLLECTIVE_BYTES
        result = call.results[0].ref if call.results else (NULL_SLOT, 0)
        self.emit(_COLLECTIVE, table.collectives_slot, offset, -len(table.stops) - 1, *operand, *result)
        table.collectives.append(call)
        table.stops.append((call, len(table.words)))

    def move(self, moves: Sequence[tuple[int, BufferRef]]) -> None:
        """Assign slots in parallel: a source that is overwritten before it is read is saved to a temporary slot."""
        overwritten: set[int] = set()
        ready: list[tuple[int, BufferRef]] = []
        for slot, (source, offset) in moves:
            if source in overwritten:
                temporary = self.scratch()
                self.emit(_MOVE, temporary, source, offset)
                source, offset = temporary, 0
            overwritten.add(slot)
            if (source, offset) != (slot, 0):
                ready.append((slot, (source, offset)))
        for slot, reference in ready:
            self.emit(_MOVE, slot, *reference)

    def emit(self, *words: int) -> None:
        self.table.words += words

    def scratch(self) -> int:
        """Allocate a slot."""
        self.table.slots += 1
        return self.table.slots - 1

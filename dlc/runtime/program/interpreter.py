"""Interpret the instructions of a host program in Python, for targets without a native executor.

The caller provides slot values, such as a buffer and an offset, and callbacks for launches and memory access.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from dlc.errors import DlcError
from dlc.runtime.program.host_program import (
    I64_BYTES,
    Branch,
    BufferRef,
    CallPrinter,
    CarriedSlot,
    Fail,
    Instruction,
    Launch,
    Loop,
    Parallel,
    PrintArrays,
    PythonCall,
    SetSize,
    While,
)
from dlc.runtime.program.python_calls import call_python_op
from dlc.runtime.python_ops.control import format_failure

# A buffer and an offset in bytes.
BufferOffset: TypeAlias = "tuple[Any, int]"


def interpret(
    block: Callable[[], Sequence[Instruction]],
    slot_values: list[BufferOffset],
    launch: Callable[[Launch, list[BufferOffset]], None],
    launch_sections: Callable[[Parallel, list[BufferOffset]], None],
    read: Callable[[BufferOffset, int], bytes],
    write: Callable[[BufferOffset, bytes], None],
    set_size: Callable[[str, int], None],
    printer: CallPrinter,
) -> None:
    """Run a block on `slot_values`.

    Args:
        block: Returns the instructions; after a data-dependent size has been set, those for this size.
        launch_sections: Launches sections, whose launches may run in order or concurrently.
        read: Returns the bytes at a buffer offset.
        write: Stores bytes at a buffer offset.
        set_size: Called for each data-dependent size.

    Raises DlcError for a run-time assertion (`Fail`).
    """

    def read_at(ref: BufferRef, count: int) -> bytes:
        return read(resolve_ref(slot_values, ref), count)

    def run_body(k: int, bodies: Callable[[Any], Sequence[Instruction]]) -> None:
        interpret(lambda: bodies(block()[k]), slot_values, launch, launch_sections, read, write, set_size, printer)

    instructions = block()
    for k in range(len(instructions)):
        instruction = instructions[k]
        if isinstance(instruction, Launch):
            launch(instruction, slot_values)
            continue
        match instruction:
            case Loop(count=count, carried=carried, elements=elements):
                _assign_slots([(c, c.first) for c in carried], slot_values)
                firsts = [resolve_ref(slot_values, (slot, int(offset))) for slot, offset in (e.first for e in elements)]
                for step in range(int(count)):
                    for element, (buffer, offset) in zip(elements, firsts, strict=True):
                        slot_values[element.slot] = buffer, offset + step * int(element.step)
                    run_body(k, _body)
                    _assign_slots([(c, c.following) for c in _carried(block()[k])], slot_values)
            case While(begin=begin, carried=carried):
                condition = resolve_ref(slot_values, begin)
                _assign_slots([(c, c.first) for c in carried], slot_values)
                while any(read(condition, 1)):
                    run_body(k, _body)
                    condition = resolve_ref(slot_values, cast(While, block()[k]).again)
                    _assign_slots([(c, c.following) for c in _carried(block()[k])], slot_values)
            case Branch(condition=ref):
                run_body(k, _then if any(read(resolve_ref(slot_values, ref), 1)) else _otherwise)
            case Parallel():
                launch_sections(instruction, slot_values)
            case Fail(message=message, values=values):
                raise DlcError(format_failure(message, [decode_i64(read_at(ref, I64_BYTES)) for ref in values]))
            case SetSize(symbol=symbol, ref=ref):
                set_size(symbol, decode_i64(read_at(ref, I64_BYTES)))
            case PrintArrays():
                printer.print_once(instruction, read_at, {})
            case PythonCall():
                results, data_dependent_sizes = call_python_op(instruction, read_at, {})
                for symbol, size in data_dependent_sizes.items():
                    set_size(symbol, size)
                for array, result in zip(cast(PythonCall, block()[k]).results, results, strict=True):
                    write(resolve_ref(slot_values, array.ref), result.tobytes())
        # The instruction may have set a size.
        instructions = block()


def _body(loop: Loop | While) -> Sequence[Instruction]:
    return loop.body


def _then(branch: Branch) -> Sequence[Instruction]:
    return branch.then


def _otherwise(branch: Branch) -> Sequence[Instruction]:
    return branch.otherwise


def _carried(loop: Instruction) -> Sequence[CarriedSlot]:
    return cast("Loop | While", loop).carried


def decode_i64(bytes: bytes) -> int:
    """Decode an i64 in native byte order: a size, or a value in an error message."""
    return int.from_bytes(bytes, sys.byteorder, signed=True)


def resolve_ref(slot_values: Sequence[BufferOffset], ref: BufferRef) -> BufferOffset:
    """Return the buffer and offset of a buffer reference."""
    slot, offset = ref
    buffer, start = slot_values[slot]
    return buffer, start + offset


def _assign_slots(carried: Sequence[tuple[CarriedSlot, BufferRef]], slot_values: list[BufferOffset]) -> None:
    """Assign carried slots in parallel."""
    refs = [resolve_ref(slot_values, ref) for _, ref in carried]
    for (slot, _), ref in zip(carried, refs, strict=True):
        slot_values[slot.slot] = ref

"""Slots of a call that hold addresses in the arena, sizes or task counts, and the operations that compute them."""

from __future__ import annotations

from collections.abc import Iterable

from dlc.arrays import TensorInfo
from dlc.runtime.cpu.record_table import RecordTable
from dlc.runtime.program.host_program import ARENA_SLOT, NULL_SLOT
from dlc.runtime.program.size_operations import SizeOperations

# A slot, the operation that computes its value, and the slot of the address to which the value is added.
SlotInit = tuple[int, int, int]


def slot_inits(
    operations: SizeOperations, table: RecordTable, outputs: Iterable[tuple[TensorInfo, int]] = ()
) -> tuple[list[SlotInit], int]:
    """Return the slot inits of a call, and the operation that computes the size of the arena.

    `outputs` are allocated in the arena. Offsets in the arena come first.
    """
    offsets, arena_bytes = operations.arena_layout(outputs)
    code, operation_of = operations.code, operations.code.operation_of
    inits = [(slot, offset, ARENA_SLOT) for slot, offset in offsets]
    inits += [(slot, operation_of(size), NULL_SLOT) for size, slot in table.sizes.items()]
    inits += [
        (slot, code.task_count(operation_of(tasks), operation_of(bytes_)), NULL_SLOT)
        for (tasks, bytes_), slot in table.work.items()
    ]
    return inits, arena_bytes

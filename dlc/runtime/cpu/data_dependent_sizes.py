"""The structs from which native code (data_dependent_sizes.ll) computes data-dependent sizes: one per program, one per call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from dlc.arrays import address_of
from dlc.runtime.cpu.record_table import RecordTable
from dlc.runtime.cpu.slot_inits import SlotInit
from dlc.runtime.program.host_program import SetSize
from dlc.runtime.program.size_operations import SizeOperations
from dlc.shapes.size_code import Operation

# Index of the arena capacity in the struct %Sizing of data_dependent_sizes.ll, in 8-byte words.
_ARENA_CAPACITY_WORD = 13


@dataclass(frozen=True)
class SetSizeRecord:
    """A readback of a data-dependent size: stop code, buffer reference of the value, byte offset of the next record, the value
    before it is known, and the operations that check it. A size that Python computes has no stop record.
    """

    code: int
    slot: int
    offset: int
    next_record: int
    initial: int
    first_check: int
    check_count: int


# No record has this stop code.
_SET_BY_PYTHON = 1, 0, 0, 0


def size_tables(operations: SizeOperations, table: RecordTable) -> tuple[list[Operation], list[SetSizeRecord]]:
    """Return the operations of a program, followed by the checks of its data-dependent sizes; and the readback of each of these
    sizes, in the order in which they become known.
    """
    host, rows = operations.host, [*operations.code.native_operations]
    stops = {
        stop.symbol: (-k, *stop.ref, 8 * following)
        for k, (stop, following) in enumerate(table.stops, 1)
        if isinstance(stop, SetSize)
    }
    readbacks: list[SetSizeRecord] = []
    for symbol, initial in zip(host.data_dependent_sizes, host.initial_sizes, strict=True):
        checks = operations.checks(symbol)
        readbacks.append(SetSizeRecord(*stops.get(symbol, _SET_BY_PYTHON), initial, len(rows), len(checks)))
        rows += checks
    return rows, readbacks


class SizingConstants:
    """The fields of %Sizing that all calls of a program share.

    Attributes:
        first_record: The address of the program's bytecode.
        arena: Index of the operation that computes the byte size of the arena.
        outputs: Index of the operation that computes the byte size of each output with a data-dependent shape.
    """

    def __init__(
        self, operations: SizeOperations, table: RecordTable, slot_inits: Sequence[SlotInit], arena: int, first_record: int
    ) -> None:
        host, self.arena, self.first_record = operations.host, arena, first_record
        self.outputs = {k: operations.bytes(info) for info, k in operations.data_dependent_outputs()}
        self.symbol_count, self.data_dependent_count = len(host.input_symbols), len(host.data_dependent_sizes)
        self.operation_count = len(operations.code.operations)
        rows, readbacks = size_tables(operations, table)
        self.operations, self.slot_inits, self.readbacks = (
            np.array(table, np.int64) for table in (rows, slot_inits, [astuple(record) for record in readbacks])
        )


class SizingState:
    """The struct %Sizing of one call: its sizes, operation results, and the allocated bytes of the arena and of outputs."""

    def __init__(self, constants: SizingConstants) -> None:
        self._constants = constants
        self._sizes = np.zeros(constants.symbol_count + constants.data_dependent_count, np.int64)
        self._operation_results = np.zeros(constants.operation_count, np.int64)
        self._capacities = np.array([(operation, 0) for operation in constants.outputs.values()], np.int64)
        fields = [
            *(
                address_of(constants.operations),
                constants.operation_count,
                address_of(constants.slot_inits),
                len(constants.slot_inits),
            ),
            *(address_of(constants.readbacks), constants.data_dependent_count, constants.symbol_count),
            *(constants.arena, len(constants.outputs), constants.first_record),
            *map(address_of, (self._sizes, self._operation_results, self._capacities)),
            0,
        ]
        self._struct = np.array(fields, np.int64)
        self.address = address_of(self._struct)

    @property
    def sizes(self) -> list[int]:
        """All sizes: first the symbols of the input shapes, then the data-dependent sizes."""
        return self._sizes.tolist()

    @sizes.setter
    def sizes(self, sizes: Sequence[int]) -> None:
        self._sizes[:] = sizes

    @property
    def data_dependent_sizes(self) -> list[int]:
        """The data-dependent sizes; negative if native code found a size outside of the program's domain."""
        return self.sizes[self._constants.symbol_count :]

    def set_capacities(self, arena: int, outputs: Sequence[int]) -> None:
        """Set the allocated bytes of the arena, and of each output with a data-dependent shape."""
        self._struct[_ARENA_CAPACITY_WORD] = arena
        for capacity, num_bytes in zip(self._capacities, outputs, strict=True):
            capacity[1] = num_bytes

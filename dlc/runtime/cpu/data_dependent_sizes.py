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

# Index of the arena capacity in the struct %Sizing of data_dependent_sizes.ll, in 8-byte words.
_ARENA_CAPACITY_WORD = 14


@dataclass(frozen=True)
class SetSizeRecord:
    """A readback of a data-dependent size: stop code, buffer reference of the value, byte offset of the next record,
    the valid range, the index of a size that it must equal (-1: none), and the index of the requirement for messages.
    A size that Python computes has no stop record.
    """

    code: int
    slot: int
    offset: int
    next_record: int
    low: int
    high: int
    same: int
    requirement: int


# No record has this stop code.
_SET_BY_PYTHON = SetSizeRecord(1, 0, 0, 0, 0, 0, -1, -1)


def set_size_records(operations: SizeOperations, table: RecordTable) -> list[SetSizeRecord]:
    """Return the readback of each data-dependent size, in the order in which the sizes become known."""
    host = operations.host
    indices = {symbol: k for k, symbol in enumerate(host.symbols)}
    rows = {
        stop.symbol: SetSizeRecord(
            -k,
            *stop.ref,
            8 * following,
            *operations.bounds(stop.symbol),
            indices.get(host.equal.get(stop.symbol, ""), -1),
            operations.requirement(f"data-dependent {operations.domain_text(stop.symbol)}"),
        )
        for k, (stop, following) in enumerate(table.stops, 1)
        if isinstance(stop, SetSize)
    }
    return [rows.get(symbol, _SET_BY_PYTHON) for symbol in host.data_dependent_sizes]


class SizingConstants:
    """The fields of %Sizing that all calls of a program share.

    Attributes:
        first_record: The address of the program's bytecode.
        initial_sizes: The values of data-dependent sizes before they are computed: their lower bounds.
        arena: Index of the operation that computes the byte size of the arena.
        outputs: Index of the operation that computes the byte size of each output with a data-dependent shape.
    """

    def __init__(
        self, operations: SizeOperations, table: RecordTable, slot_inits: Sequence[SlotInit], arena: int, first_record: int
    ) -> None:
        host, self.arena, self.first_record = operations.host, arena, first_record
        self.outputs = {k: operations.bytes(info) for info, k in operations.data_dependent_outputs()}
        self.symbol_count, self.data_dependent_count = len(host.input_symbols), len(host.data_dependent_sizes)
        readbacks = [astuple(record) for record in set_size_records(operations, table)]
        self.operations, self.slot_inits, self.readbacks = (
            np.array(rows, np.int64) for rows in (operations.code.native_operations, slot_inits, readbacks)
        )
        self.initial_sizes = np.array(host.initial_sizes, np.int64)


class SizingState:
    """The struct %Sizing of one call: its sizes, operation results, and the allocated bytes of the arena and of outputs."""

    def __init__(self, constants: SizingConstants) -> None:
        self._constants = constants
        self._sizes = np.zeros(constants.symbol_count + constants.data_dependent_count, np.int64)
        self._operation_results = np.zeros(len(constants.operations), np.int64)
        self._capacities = np.array([(operation, 0) for operation in constants.outputs.values()], np.int64)
        fields = [
            *(
                address_of(constants.operations),
                len(constants.operations),
                address_of(constants.slot_inits),
                len(constants.slot_inits),
            ),
            *(
                address_of(constants.readbacks),
                constants.data_dependent_count,
                constants.symbol_count,
                address_of(constants.initial_sizes),
            ),
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

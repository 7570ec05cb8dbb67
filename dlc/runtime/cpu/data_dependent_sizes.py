"""The structs from which native code (data_dependent_sizes.ll) computes data-dependent sizes: one per program, one per call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from dlc.arrays import address_of
from dlc.runtime.cpu.size_operations import SizeOperations

# Index of the arena capacity in the struct %Sizing of data_dependent_sizes.ll, in 8-byte words.
_ARENA_CAPACITY_WORD = 14


class SizingConstants:
    """The fields of %Sizing that all calls of a program share.

    Attributes:
        first_record: The address of the program's bytecode.
        initial_sizes: The values of data-dependent sizes before they are computed: their lower bounds.
        arena: Index of the operation that computes the byte size of the arena.
        outputs: Index of the operation that computes the byte size of each output with a data-dependent shape.
    """

    def __init__(self, size_operations: SizeOperations, initial_sizes: Sequence[int], first_record: int) -> None:
        slot_inits, self.arena = size_operations.regions()
        slot_inits += size_operations.numbers()
        size_operations.add_bounds_checks()
        self.outputs = {k: size_operations.bytes(info) for info, k in size_operations.data_dependent_outputs()}
        self.symbol_count, self.data_dependent_count, self.first_record = (
            len(size_operations.input_symbols),
            len(size_operations.data_dependent_sizes),
            first_record,
        )
        readbacks = [astuple(record) for record in size_operations.set_size_records()]
        self.operations, self.slot_inits, self.readbacks = (
            np.array(rows, np.int64) for rows in (size_operations.code.operations, slot_inits, readbacks)
        )
        self.initial_sizes = np.array(initial_sizes, np.int64)


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

"""Data-dependent sizes in native code (data_dependent_sizes.ll): the tables that it reads, per program and per call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from dlc.arrays import address_of
from dlc.runtime.cpu.size_operations import SizeOperations

_ARENA_CAPACITY_WORD = 14  # The index of the field in %Sizing.


class DataDependentTable:
    """The tables of a program: records begin at address `start`; data-dependent sizes are initialized to `initial_sizes`."""

    def __init__(self, sizing: SizeOperations, initial_sizes: Sequence[int], first_record: int) -> None:
        slot_inits, self.arena = sizing.regions()
        slot_inits += sizing.numbers()
        sizing.add_bounds_checks()
        # The byte size of each output with data-dependent sizes.
        self.outputs = {k: sizing.bytes(info) for info, k in sizing.data_dependent_outputs()}
        self.symbol_count, self.data_dependent_count, self.first_record = (
            len(sizing.input_symbols),
            len(sizing.data_dependent_sizes),
            first_record,
        )
        set_size_records = [astuple(record) for record in sizing.set_size_records()]
        self.operations, self.slot_inits, self.set_size_records = (
            np.array(rows, np.int64) for rows in (sizing.code.operations, slot_inits, set_size_records)
        )
        self.initial_sizes = np.array(initial_sizes, np.int64)


class CallSizes:
    """The state of a call: its sizes, and the capacities of the arena and of outputs with data-dependent sizes."""

    def __init__(self, program: DataDependentTable) -> None:
        self._program = program
        self._sizes = np.zeros(program.symbol_count + program.data_dependent_count, np.int64)
        self._numbers = np.zeros(len(program.operations), np.int64)
        self._capacities = np.array([(operation, 0) for operation in program.outputs.values()], np.int64)
        words = [
            *(address_of(program.operations), len(program.operations), address_of(program.slot_inits), len(program.slot_inits)),
            *(
                address_of(program.set_size_records),
                program.data_dependent_count,
                program.symbol_count,
                address_of(program.initial_sizes),
            ),
            *(program.arena, len(program.outputs), program.first_record),
            *map(address_of, (self._sizes, self._numbers, self._capacities)),
            0,
        ]
        self._words = np.array(words, np.int64)
        self.address = address_of(self._words)

    @property
    def sizes(self) -> list[int]:
        """All sizes: those of the input shapes, then the data-dependent ones."""
        return self._sizes.tolist()

    @sizes.setter
    def sizes(self, sizes: Sequence[int]) -> None:
        self._sizes[:] = sizes

    @property
    def data_dependent_sizes(self) -> list[int]:
        """The data-dependent sizes; one that the program does not support is negative."""
        return self.sizes[self._program.symbol_count :]

    def set_capacities(self, arena: int, outputs: Sequence[int]) -> None:
        """Set the capacity in bytes of the arena, and of each output with data-dependent sizes."""
        self._words[_ARENA_CAPACITY_WORD] = arena
        for capacity, bytes in zip(self._capacities, outputs, strict=True):
            capacity[1] = bytes

"""Where data decides sizes, native code goes on by itself (deciding.ll): what it reads, of a program and of one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from dlc.arrays import address_of
from dlc.runtime.cpu.sizing import Sizing

_ROOM_OF_ARENA = 14  # its place in %Sizing


class DecidingTable:
    """What is a program's own: the records begin at `start`, and sizes are `undecided` before they are decided."""

    def __init__(self, sizing: Sizing, undecided: Sequence[int], start: int) -> None:
        fills, self.arena = sizing.regions()
        fills += sizing.numbers()
        sizing.demand()
        # Of each output that data decides the size of, the number of bytes.
        self.outputs = {k: sizing.bytes(info) for info, k in sizing.by_data()}
        self.given, self.count, self.start = len(sizing.given), len(sizing.decided), start
        decisions = [astuple(decision) for decision in sizing.decisions()]
        self.operations, self.fills, self.decisions = (
            np.array(rows, np.int64) for rows in (sizing.code.operations, fills, decisions)
        )
        self.undecided = np.array(undecided, np.int64)


class DecidedSizes:
    """What is a call's own: its sizes, and how much memory it has for what is as large as data says."""

    def __init__(self, program: DecidingTable) -> None:
        self._program = program
        self._sizes = np.zeros(program.given + program.count, np.int64)
        self._numbers = np.zeros(len(program.operations), np.int64)
        self._rooms = np.array([(number, 0) for number in program.outputs.values()], np.int64)
        words = [
            *(address_of(program.operations), len(program.operations), address_of(program.fills), len(program.fills)),
            *(address_of(program.decisions), program.count, program.given, address_of(program.undecided)),
            *(program.arena, len(program.outputs), program.start),
            *map(address_of, (self._sizes, self._numbers, self._rooms)),
            0,
        ]
        self._words = np.array(words, np.int64)
        self.location = address_of(self._words)

    @property
    def sizes(self) -> list[int]:
        """The sizes that the shapes of inputs say, then those that data decided."""
        return self._sizes.tolist()

    @sizes.setter
    def sizes(self, sizes: Sequence[int]) -> None:
        self._sizes[:] = sizes

    @property
    def decided(self) -> list[int]:
        """The sizes that data decided; below 0 one that the program does not serve."""
        return self.sizes[self._program.given :]

    def give_room(self, arena: int, outputs: Sequence[int]) -> None:
        """Says how many bytes the arena has, and each output whose size data decides."""
        self._words[_ROOM_OF_ARENA] = arena
        for room, bytes in zip(self._rooms, outputs, strict=True):
            room[1] = bytes

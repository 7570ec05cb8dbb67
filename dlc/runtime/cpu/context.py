"""What a call of native code works on: slots, which hold addresses and sizes, an arena, and the results."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int64, sizeof, string_at
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import address_of, aligned_empty
from dlc.runtime.cpu.deciding import DecidedSizes
from dlc.runtime.cpu.recycled import Recycler
from dlc.runtime.program.host_program import ARENA, Place, Printing


class Context:
    """What one call at a time needs for itself: an arena, and the slots; and which shapes of inputs they are for, and which
    sizes, where data decides some."""

    def __init__(self, slots: int) -> None:
        self.shapes: list[tuple[int, ...]] | None = None
        self.decided: DecidedSizes | None = None
        self.outputs: list[NDArray[Any]] = []
        self.results: Sequence[Recycler] = ()
        self.printing = Printing()
        self.arena = aligned_empty((0,), np.uint8)
        self.slots = np.zeros(slots, np.int64)
        self.location = address_of(self.slots)
        self.written = self.slots.data

    def require_arena(self, bytes: int) -> None:
        """Makes the arena as large; one that grows is made larger than that, so that it does not grow in each call."""
        if bytes > len(self.arena):
            self.arena = aligned_empty((max(bytes, len(self.arena) * 3 // 2),), np.uint8)
        self.slots[ARENA] = address_of(self.arena)

    def address(self, place: Place) -> int:
        """The address of a place, by the slots."""
        slot, offset = place
        return c_int64.from_address(self.location + slot * sizeof(c_int64)).value + offset

    def read(self, place: Place, count: int) -> bytes:
        """So many bytes at a place."""
        return string_at(self.address(place), count)

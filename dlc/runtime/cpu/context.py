"""The execution context of a native call: slots with addresses and sizes, an arena, and results."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int64, sizeof, string_at
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import address_of, aligned_empty
from dlc.errors import MemoryLimitError
from dlc.options import Environment
from dlc.runtime.cpu.buffer_pool import BufferPool
from dlc.runtime.cpu.data_dependent_sizes import SizingState
from dlc.runtime.program.host_program import ARENA_SLOT, BufferRef, CallPrinter


class Context:
    """The state of one call: the arena and slots, and the input shapes and data-dependent sizes that they are bound to."""

    def __init__(self, slots: int) -> None:
        self.shapes: list[tuple[int, ...]] | None = None
        self.data_dependent_sizes: SizingState | None = None
        self.outputs: list[NDArray[Any]] = []
        self.results: Sequence[BufferPool] = ()
        self.printer = CallPrinter()
        self.arena = aligned_empty((0,), np.uint8)
        self.slots = np.zeros(slots, np.int64)
        self.slots_address = address_of(self.slots)
        self.slot_bytes = self.slots.data

    def require_arena(self, bytes: int) -> None:
        """Grow the arena to at least this size; it grows geometrically, so that it does not grow in every call.

        Raises MemoryLimitError if that is more than DLC_MEMORY_LIMIT.
        """
        if bytes > len(self.arena):
            limit = Environment.read().memory_limit_bytes
            if limit is not None and bytes > limit:
                raise MemoryLimitError(
                    f"a call needs {bytes} bytes for intermediate results; DLC_MEMORY_LIMIT is {limit}: use smaller inputs, "
                    "or increase the limit"
                )
            size = max(bytes, len(self.arena) * 3 // 2)
            self.arena = aligned_empty((size if limit is None else min(size, limit),), np.uint8)
        self.slots[ARENA_SLOT] = address_of(self.arena)

    def address(self, ref: BufferRef) -> int:
        """Return the address that a buffer reference has in this call."""
        slot, offset = ref
        return c_int64.from_address(self.slots_address + slot * sizeof(c_int64)).value + offset

    def read(self, ref: BufferRef, count: int) -> bytes:
        """Return `count` bytes at a buffer reference."""
        return string_at(self.address(ref), count)

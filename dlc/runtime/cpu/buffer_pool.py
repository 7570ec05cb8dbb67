"""Buffer pools: reuse the memory of results that are no longer referenced.

Without reuse, page faults and the allocator take longer than a small program.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from ctypes import c_char
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import Array, address_of, aligned_empty

# An address, and the array that owns the memory at it.
_Memory: TypeAlias = "tuple[int, NDArray[np.uint8]]"


class BufferPool:
    """Allocates arrays for one result of a program, and reuses the memory of an array when it is no longer referenced.

    For example, a training step whose inputs are its previous results alternates between two buffers.
    """

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.shape, self._dtype = tuple(shape), dtype
        self.bytes = prod(shape) * dtype.itemsize
        self._loan = _loan_type(self.bytes)
        self._free = deque[_Memory](maxlen=1)

    def empty(self) -> Array:
        """Return an uninitialized array, as `aligned_empty` does."""
        try:
            memory = self._free.pop()
        except IndexError:
            new = aligned_empty((self.bytes,), np.dtype(np.uint8))
            memory = address_of(new), new
        loan = self._loan.from_address(memory[0])
        loan.memory, loan.free = memory, self._free
        return Array(self.shape, self._dtype, loan)


@lru_cache
def _loan_type(size: int) -> Any:
    """Return the ctypes type of a loaned block of this size, which returns the memory to its pool when it is finalized.

    Views of an array refer to the object that owns its memory, so that the block is finalized with the last view.
    """

    class Loan(c_char * size):
        __slots__ = ("free", "memory")
        free: deque[_Memory]
        memory: _Memory

        def __del__(self) -> None:
            self.free.append(self.memory)

    return Loan

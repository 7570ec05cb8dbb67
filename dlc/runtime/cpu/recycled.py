"""Memory for results that nobody has any more is used for later results.

The system hands out pages one fault at a time, and an allocator takes longer than a small program.
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

# An address, and whoever owns the memory there.
_Memory: TypeAlias = "tuple[int, NDArray[np.uint8]]"


class Recycler:
    """Gives out arrays for one of a program's results, and takes the memory of one back when nothing refers to it.

    A training step that is given what it returned last finds the memory of the step before that.
    """

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.shape, self._dtype = tuple(shape), dtype
        self.bytes = prod(shape) * dtype.itemsize
        self._loan = _loan_type(self.bytes)
        self._free = deque[_Memory](maxlen=1)

    def empty(self) -> Array:
        """An uninitialised array, as `aligned_empty`."""
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
    """The type of memory of so many bytes that is lent.

    Arrays made of an array refer to the object that this one's memory is of, so that its end is that of the last of them.
    """

    class Loan(c_char * size):
        __slots__ = ("free", "memory")
        free: deque[_Memory]
        memory: _Memory

        def __del__(self) -> None:
            self.free.append(self.memory)

    return Loan

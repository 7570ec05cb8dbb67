"""Memory for results that nobody has any more is used for later results: the system hands out pages one fault at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import aligned_empty

# Smaller buffers an allocator keeps by itself.
_LARGE_BYTES = 1 << 17


class _Loan(ref["NDArray[np.uint8]"]):
    """Sees the end of the last array that lies in `memory`."""

    __slots__ = ("memory",)
    memory: NDArray[np.uint8]


class Recycler:
    """Gives out arrays, and takes their memory back when nothing refers to it: as much as `most` arrays of each size need.

    A training step that is given what it returned last finds the memory of the step before that.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._most = {size: sizes.count(size) for size in sizes if size >= _LARGE_BYTES}
        self._free: dict[int, list[NDArray[np.uint8]]] = {size: [] for size in self._most}
        # By their own identities, since arrays have no hash.
        self._loans: dict[int, _Loan] = {}

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An uninitialised array, as `aligned_empty`."""
        size = prod(shape) * dtype.itemsize
        if size not in self._free:
            return aligned_empty(shape, dtype)
        try:
            memory = self._free[size].pop()
        except IndexError:
            memory = aligned_empty((size,), np.dtype(np.uint8))
        # Arrays made of this one refer to it, and not to `memory`, since an array's base is no memoryview.
        lent = np.frombuffer(memory.data, np.uint8)
        loan = _Loan(lent, self._taken_back)
        loan.memory = memory
        self._loans[id(loan)] = loan
        return np.ndarray(shape, dtype, lent)

    def _taken_back(self, loan: ref[NDArray[np.uint8]]) -> None:
        assert isinstance(loan, _Loan)
        del self._loans[id(loan)]
        free = self._free[loan.memory.nbytes]
        if len(free) < self._most[loan.memory.nbytes]:
            free.append(loan.memory)

"""Arrays that a traced function reads from around it: the program has what they hold when they are read.

A function may go on with such an array as NumPy does, `mask[i] = 1` between one use and the next.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Up to so many bytes a copy costs nothing beside compilation; larger arrays, which are weights, cannot be written meanwhile.
_COPIED_BYTES = 1 << 24


class Snapshots:
    """What arrays held when they were read."""

    def __init__(self) -> None:
        self._frozen: list[Array] = []

    def take(self, array: Array) -> Array:
        """What `array` holds now: a copy, or a large one itself, which is read-only until `thaw`."""
        owners = _writeable(array)
        if not owners:
            return array
        if array.nbytes <= _COPIED_BYTES:
            return np.array(array, order="C")
        for owner in owners:
            owner.flags.writeable = False
        self._frozen += owners
        return array

    @property
    def any_frozen(self) -> bool:
        return bool(self._frozen)

    def thaw(self) -> None:
        """Large arrays may be written again."""
        # An array can be written only once what it is a view of can.
        for owner in reversed(self._frozen):
            owner.flags.writeable = True
        self._frozen.clear()


def holds_still(array: Array, taken: Array) -> bool:
    """Whether `array` holds what it did when it was taken; not if it has NaN."""
    return array is taken or np.array_equal(array, taken)


def _writeable(array: Array) -> list[Array]:
    """Through which arrays its elements may be written: itself, and what it is a view of."""
    found: list[Array] = []
    while isinstance(cast("Any", array), np.ndarray):
        if array.flags.writeable:
            found.append(array)
        array = cast(Array, array.base)
    return found

"""Snapshots of arrays that a traced function captures: the program uses their contents at the time of the capture.

The function may modify such an array in place later, as in NumPy: `mask[i] = 1`.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Copying this much is cheap relative to compilation; larger arrays, such as weights, are made read-only during tracing.
_MAX_COPIED_BYTES = 1 << 24


class Snapshots:
    """The contents of captured arrays."""

    def __init__(self) -> None:
        self._frozen: list[Array] = []

    def take(self, array: Array) -> Array:
        """Return the contents of `array`: a copy, or a large array itself, which is read-only until `restore_writeable`.

        A large array is copied too if NumPy could not make it writeable again.
        """
        owners = _writeable_arrays(array)
        if not owners:
            return array
        if array.nbytes <= _MAX_COPIED_BYTES or not all(map(_is_restorable, owners)):
            return np.array(array, order="C")
        for owner in owners:
            owner.flags.writeable = False
        self._frozen += owners
        return array

    @property
    def has_frozen_arrays(self) -> bool:
        return bool(self._frozen)

    def restore_writeable(self) -> None:
        """Make large arrays writeable again."""
        # NumPy requires the base of a view to be writeable first.
        for owner in reversed(self._frozen):
            owner.flags.writeable = True
        self._frozen.clear()


def is_unchanged(array: Array, snapshot: Array) -> bool:
    """Return whether `array` still equals its snapshot; False if it contains NaN."""
    return array is snapshot or np.array_equal(array, snapshot)


def _writeable_arrays(array: Array) -> list[Array]:
    """Return the arrays through which its elements can be written: itself and its bases."""
    writeable: list[Array] = []
    while isinstance(cast("Any", array), np.ndarray):
        if array.flags.writeable:
            writeable.append(array)
        array = cast(Array, array.base)
    return writeable


def _is_restorable(array: Array) -> bool:
    """Return whether NumPy lets a read-only `array` become writeable: its memory is its own, or its base is writeable.

    The memory of other libraries, such as PyTorch's tensors or DLPack capsules, is not.
    """
    base = cast("Any", array.base)
    if base is None or isinstance(base, np.ndarray):
        return base is None or base.flags.writeable
    try:
        return not memoryview(base).readonly
    except (TypeError, BufferError):
        return False

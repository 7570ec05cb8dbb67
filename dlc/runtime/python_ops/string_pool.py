"""The string pool of a call: strings by index, first the strings that are constants of the model, then new ones.

constants: ("no", "yes")      the input "perhaps" becomes 2; concatenating "no" and "yes" creates "noyes", which becomes 3
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import are_strings, require_unmasked, to_numpy
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.value_types import OBJECT_DTYPE


class StringPool:
    """The strings of one call by index: `constants` of the model, followed by new ones."""

    def __init__(self, constants: Mapping[str, int]) -> None:
        self._constants = constants
        self._new: dict[str, int] = {}
        self._strings: list[str] = []

    def encode(self, array: NDArray[Any]) -> NDArray[np.int64]:
        """Return the indices of the elements of a string array."""
        return np.fromiter(map(self._index_of, array.reshape(-1).tolist()), np.int64, array.size).reshape(array.shape)

    def decode(self, indices: Any) -> NDArray[Any]:
        """Return the strings at these indices as an array of Python strings."""
        if len(self._strings) < len(self._constants) + len(self._new):
            self._strings = [*self._constants, *self._new]
        array: NDArray[Any] = np.asarray(indices)
        strings = np.empty(array.size, OBJECT_DTYPE)
        strings[:] = [self._strings[index] for index in array.reshape(-1).tolist()]
        return strings.reshape(array.shape)

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Make this the current pool of string ops while a program runs."""
        token = _CURRENT_POOL.set(self)
        try:
            yield
        finally:
            _CURRENT_POOL.reset(token)

    def _index_of(self, element: str) -> int:
        index = self._constants.get(element)
        return self._new.setdefault(element, len(self._constants) + len(self._new)) if index is None else index


def to_string_array(value: Any, where: str) -> NDArray[Any]:
    """Convert a value to an array of Python strings. Raises DTypeError if it does not consist of strings."""
    try:
        array = to_numpy(value)
    except (ShapeError, DTypeError) as error:
        raise type(error)(f"{where}: {error}") from error
    require_unmasked(value, where)
    is_empty = isinstance(value, list | tuple) and not array.size  # NumPy converts it to floats.
    if not is_empty and (array.dtype.kind not in "UOT" or not are_strings(array)):
        raise DTypeError(f"{where}: expected an array of strings; got {array.dtype}")
    return array.astype(OBJECT_DTYPE, copy=False)


# Ops receive arrays only, so the pool is passed in a context variable; each thread has its own.
_CURRENT_POOL: ContextVar[StringPool] = ContextVar("string_pool")


def current_string_pool() -> StringPool:
    """Return the string pool of the running call. Raises DlcError if no model is running."""
    try:
        return _CURRENT_POOL.get()
    except LookupError:
        raise DlcError("string ops run inside of a model only: a program by itself has no string pool") from None

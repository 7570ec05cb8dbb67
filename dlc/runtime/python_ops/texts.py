"""Text by number: a program has places in the list of the texts that its model knows, and behind it of those of a call.

known: ("no", "yes")      a call brings "perhaps", which is 2, and joins "no" to "yes": "noyes" is 3
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import are_text, given_array, require_unmasked
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.forms import OBJECTS


class Texts:
    """The texts of one call: those that the model knows, each with its place, then those that are new."""

    def __init__(self, known: Mapping[str, int]) -> None:
        self._known = known
        self._new: dict[str, int] = {}
        self._listed: list[str] = []

    def numbers(self, array: NDArray[Any]) -> NDArray[np.int64]:
        """The numbers of the elements of an array of text."""
        return np.fromiter(map(self._number, array.reshape(-1).tolist()), np.int64, array.size).reshape(array.shape)

    def of(self, numbers: Any) -> NDArray[Any]:
        """The text that numbers stand for, as an array of Python's strings."""
        if len(self._listed) < len(self._known) + len(self._new):
            self._listed = [*self._known, *self._new]
        places: NDArray[Any] = np.asarray(numbers)
        found = np.empty(places.size, OBJECTS)
        found[:] = [self._listed[place] for place in places.reshape(-1).tolist()]
        return found.reshape(places.shape)

    @contextmanager
    def in_use(self) -> Generator[None]:
        """While the program runs, its operators on text read and write these."""
        token = _OF_THE_CALL.set(self)
        try:
            yield
        finally:
            _OF_THE_CALL.reset(token)

    def _number(self, element: str) -> int:
        number = self._known.get(element)
        return self._new.setdefault(element, len(self._known) + len(self._new)) if number is None else number


def text_array(value: Any, where: str) -> NDArray[Any]:
    """Text as an array of Python's strings. Raises DTypeError for what is none."""
    try:
        array = given_array(value)
    except (ShapeError, DTypeError) as error:
        raise type(error)(f"{where}: {error}") from error
    require_unmasked(value, where)
    is_empty = isinstance(value, list | tuple) and not array.size  # which NumPy takes for floats
    if not is_empty and (array.dtype.kind not in "UOT" or not are_text(array)):
        raise DTypeError(f"{where}: expected text, an array of Python's or NumPy's strings; got {array.dtype}")
    return array.astype(OBJECTS, copy=False)


# Steps of a program have arrays only; calls in several threads have texts of their own.
_OF_THE_CALL: ContextVar[Texts] = ContextVar("texts")


def texts_of_the_call() -> Texts:
    """The texts of the call that runs. Raises DlcError where no call of a model does."""
    try:
        return _OF_THE_CALL.get()
    except LookupError:
        raise DlcError("an operator on text runs in a model only: its program by itself has no list of texts") from None

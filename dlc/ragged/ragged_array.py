"""`Ragged`: a batch of sequences of different lengths, stored without padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

import dlc.numpy as dnp
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.trace import Tracer, user_line_text
from dlc.ir import BlockArgument
from dlc.numpy.apply import operand, refuse
from dlc.shapes.dims import Size


@dataclass(init=False, eq=False)
class Ragged:
    """A batch of sequences: `values` [L, …] has their concatenated rows, `lengths` [B] the number of rows of each.

    It is a pytree of two arrays. Arithmetic operators apply to all rows; the other operand is a Ragged with the same lengths,
    an array that broadcasts to a row, or an array [B, …] of the rank of `values`, with one row per sequence.

    The sum of `lengths` must be L. Rows after the last sequence belong to none.
    """

    values: Any
    lengths: Any

    # Arithmetic of a NumPy array and a Ragged calls the Ragged's operators.
    __array_ufunc__ = None

    def __init__(self, values: Any, lengths: Any) -> None:
        self.values = values
        self.lengths = lengths
        self._line = user_line_text()
        # As a pytree it may hold other leaves than arrays, such as axes.
        if isinstance(values, np.ndarray) and isinstance(lengths, np.ndarray):
            _require_partition(cast("np.ndarray[Any, Any]", values), cast("np.ndarray[Any, Any]", lengths))

    # Structure

    @property
    def shape(self) -> tuple[Any, ...]:
        """(B, None, …): the number of sequences, and the shape of a row; None for the lengths."""
        return (self.lengths.shape[0], None, *self.values.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return operand(self.values).dtype

    @property
    def ends(self) -> Any:
        """The index after the last row of each sequence, int64 [B]."""
        return dnp.cumsum(dnp.astype(self.lengths, np.int64))

    @property
    def starts(self) -> Any:
        """The index of the first row of each sequence, int64 [B]."""
        return self.ends - self.lengths

    @property
    def sequence_ids(self) -> Any:
        """The sequence of each row, int64 [L]."""
        # The number of sequences that end before each row. A binary search would be compiled for each number of sequences.
        num_ends = dnp.at(dnp.zeros((self.values.shape[0] + 1,), np.int64))[self.ends].add(1)
        ids = dnp.cumsum(num_ends)[:-1]
        return dnp.minimum(ids, self.lengths.shape[0] - 1)

    @property
    def positions(self) -> Any:
        """The position of each row in its sequence, int64 [L]."""
        return dnp.arange(self.values.shape[0]) - self.starts[self.sequence_ids]

    @property
    def origin(self) -> str:
        """For messages: the argument that holds the lengths, or the line that created the batch."""
        value = self.lengths.value if isinstance(self.lengths, Tracer) else None
        if isinstance(value, BlockArgument) and value.name_hint:
            return f"argument {value.name_hint}"
        return f"one created at {self._line}" if self._line else "one of unknown origin"

    def __len__(self) -> int:
        return self.lengths.shape[0]

    def __getitem__(self, index: int) -> Any:
        """Return the rows of one sequence; their number is data-dependent if the lengths are traced."""
        count: Size = self.lengths.shape[0]
        if isinstance(cast(object, index), slice | tuple | None):
            refuse(DTypeError(f"Ragged[{index!r:.60}]: expected an integer, the index of a sequence"))
        if isinstance(cast(object, index), int) and isinstance(count, int):
            if not -count <= index < count:
                raise IndexError(f"sequence {index} of a Ragged with {count} sequences")
            index %= count
        start = self.starts[index]
        return self.values[start : start + self.lengths[index]]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Ragged(values={self.values!r}, lengths={self.lengths!r})"

    # Arithmetic

    def __add__(self, other: Any) -> Ragged:
        return _combine(dnp.add, self, other)

    def __radd__(self, other: Any) -> Ragged:
        return _combine(dnp.add, other, self)

    def __sub__(self, other: Any) -> Ragged:
        return _combine(dnp.subtract, self, other)

    def __rsub__(self, other: Any) -> Ragged:
        return _combine(dnp.subtract, other, self)

    def __mul__(self, other: Any) -> Ragged:
        return _combine(dnp.multiply, self, other)

    def __rmul__(self, other: Any) -> Ragged:
        return _combine(dnp.multiply, other, self)

    def __truediv__(self, other: Any) -> Ragged:
        return _combine(dnp.divide, self, other)

    def __rtruediv__(self, other: Any) -> Ragged:
        return _combine(dnp.divide, other, self)

    def __neg__(self) -> Ragged:
        return Ragged(-self.values, self.lengths)


def same_lengths(name: str, *batches: Ragged) -> Any:
    """Return the lengths of the batches. Raises ShapeError, which names the origins of both, if two may differ."""
    first, *others = batches
    for other in others:
        if not _is_same(first.lengths, other.lengths):
            refuse(
                ShapeError(
                    f"dlc.ragged.{name}: two batches with different lengths: {first.origin} and {other.origin}; "
                    "if these are equal, use one array for both: dlc.ragged.Ragged(y.values, x.lengths)"
                )
            )
    return first.lengths


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two arrays of lengths are the same value, or constants with equal elements."""
    if a is b or (isinstance(a, Tracer) and isinstance(b, Tracer) and a.value is b.value):
        return True
    first, second = (x.array if isinstance(x, Tracer) else np.asarray(x) for x in (a, b))
    return first is not None and second is not None and np.array_equal(first, second)


def _combine(function: Callable[[Any, Any], Any], x: Any, y: Any) -> Ragged:
    """Apply an operator to the rows of two operands, of which at least one is a Ragged."""
    batches = [a for a in (x, y) if isinstance(a, Ragged)]
    lengths, like = same_lengths(function.__name__, *batches), batches[0]
    return Ragged(function(*(_rows(a, like, function.__name__) for a in (x, y))), lengths)


def _rows(x: Any, like: Ragged, function: str) -> Any:
    """Return an operand as an array that broadcasts to the rows of a batch."""
    if isinstance(x, Ragged):
        return x.values
    array = operand(x)
    is_per_sequence = len(array.shape) == len(like.values.shape) and array.shape[0] != 1
    return repeated_rows(function, array, like) if is_per_sequence else x


def repeated_rows(function: str, array: Any, like: Ragged) -> Any:
    """Repeat row b of an array [B, …] for each row of sequence b."""
    if not array.shape or array.shape[0] != like.lengths.shape[0]:
        shape, count = tuple(array.shape), like.lengths.shape[0]
        refuse(ShapeError(f"dlc.ragged.{function}: an array of shape {shape} for {count} sequences; expected [B, …]"))
    return dnp.take(array, like.sequence_ids, axis=0)


def take_rows(values: Any, indices: Any) -> Any:
    """Return rows by index; zeros if there are no rows."""
    if values.shape[0] == 0:
        return dnp.zeros((*indices.shape, *values.shape[1:]), values.dtype)
    return dnp.take(values, indices, axis=0)


def _require_partition(values: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> None:
    """Raise ShapeError unless lengths are non-negative integers whose sum is the number of rows."""
    if not values.ndim:
        refuse(ShapeError("dlc.ragged.Ragged: values of rank 0; expected the rows of all sequences, [L, …]"))
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
        got = f"{lengths.dtype}{list(lengths.shape)}"
        refuse(DTypeError(f"dlc.ragged.Ragged: lengths of type {got}; expected a vector of integers"))
    if lengths.size and lengths.min() < 0:
        refuse(ShapeError(f"dlc.ragged.Ragged: a length of {lengths.min()}; expected 0 or more"))
    if lengths.sum() != len(values):
        refuse(ShapeError(f"dlc.ragged.Ragged: the lengths sum to {lengths.sum()}, but there are {len(values)} rows of values"))

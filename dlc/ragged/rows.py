"""Functions of the rows of ragged batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlc.numpy as dnp
from dlc import tree
from dlc.errors import ShapeError
from dlc.numpy.apply import ArrayLike, operand, refuse
from dlc.ragged.ragged_array import Ragged, repeated_rows, same_lengths, take_rows

__all__ = ["expand", "first", "last", "map", "reverse"]


def map(f: Callable[..., Any], x: Ragged, /, *others: Any) -> Any:
    """Apply a function of rows to all rows at once; return `f(values, …)` as a batch with the same lengths.

    `others` are further batches with the same lengths, or arguments that are passed on as they are. Each array that `f`
    returns becomes a batch.
    """
    lengths = same_lengths("map", x, *(y for y in others if isinstance(y, Ragged)))
    result = f(*(y.values if isinstance(y, Ragged) else y for y in (x, *others)))

    def as_batch(values: Any) -> Ragged:
        rows = x.values.shape[0]
        if not values.shape or values.shape[0] != rows:
            refuse(
                ShapeError(f"dlc.ragged.map: f returned shape {tuple(values.shape)} for {rows} rows; expected one row for each")
            )
        return Ragged(values, lengths)

    return tree.map(as_batch, result)


def expand(x: ArrayLike, like: Ragged, /) -> Ragged:
    """Repeat row b of an array [B, …] for each row of sequence b; return a batch with the lengths of `like`."""
    return Ragged(repeated_rows("expand", operand(x), like), like.lengths)


def first(x: Ragged, /) -> Any:
    """Return the first row of each sequence, [B, …]; zeros for an empty one."""
    return _row(x, x.starts)


def last(x: Ragged, /) -> Any:
    """Return the last row of each sequence, [B, …]; zeros for an empty one."""
    return _row(x, x.ends - 1)


def _row(x: Ragged, rows: Any) -> Any:
    is_empty = dnp.reshape(x.lengths == 0, (-1, *(1 for _ in x.values.shape[1:])))
    return dnp.where(is_empty, dnp.astype(0, x.dtype), take_rows(x.values, dnp.where(x.lengths == 0, 0, rows)))


def reverse(x: Ragged, /) -> Ragged:
    """Return the batch with the rows of each sequence in reverse order."""
    rows = dnp.take(x.starts + x.ends - 1, x.sequence_ids) - dnp.arange(x.values.shape[0])
    return Ragged(dnp.take(x.values, rows, axis=0), x.lengths)

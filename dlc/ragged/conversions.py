"""Conversions between ragged batches and lists of arrays, padded arrays and nested tensors of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.errors import DTypeError, ShapeError
from dlc.numpy.apply import ArrayLike, is_traced, operand, refuse
from dlc.ragged.ragged_array import Ragged, take_rows

__all__ = ["from_padded", "from_torch", "of", "to_padded", "to_torch"]


def of(arrays: Sequence[ArrayLike], /) -> Ragged:
    """Return the batch of sequences `arrays`, each [n, …] with a length of its own; the shapes of rows must be equal."""
    operands = [operand(x) for x in arrays]
    if not operands:
        refuse(ShapeError("dlc.ragged.of: no sequences; expected one or more arrays"))
    first = operands[0]
    for k, x in enumerate(operands):
        if not x.shape or x.shape[1:] != first.shape[1:]:
            expected = "rows as its first axis" if not x.shape else f"rows of shape {tuple(first.shape[1:])}, as sequence 0 has"
            refuse(ShapeError(f"dlc.ragged.of: sequence {k} has shape {tuple(x.shape)}; expected {expected}"))
        if x.dtype != first.dtype:
            refuse(DTypeError(f"dlc.ragged.of: sequence {k} is {x.dtype}, sequence 0 is {first.dtype}; convert with .astype"))
    return Ragged(dnp.concatenate(operands, axis=0), dnp.asarray([x.shape[0] for x in operands], dtype=np.int64))


def to_padded(x: Ragged, /, length: int | None = None, *, fill: float = 0) -> Any:
    """Return the sequences as an array [B, length, …], with `fill` after the end of each.

    `length` is by default the largest one; under `dlc.jit` this size is data-dependent. Rows beyond `length` are omitted.
    """
    limit: Any = dnp.max(x.lengths) if length is None else length or 0
    steps = dnp.arange(limit if is_traced(limit) else int(limit))
    is_row = dnp.expand_dims(steps, 0) < dnp.expand_dims(x.lengths, 1)
    rows = dnp.where(is_row, dnp.expand_dims(x.starts, 1) + steps, 0)
    values = take_rows(operand(x.values), rows)
    return dnp.where(dnp.reshape(is_row, (*is_row.shape, *(1 for _ in x.values.shape[1:]))), values, fill)


def from_padded(padded: ArrayLike, lengths: ArrayLike, /) -> Ragged:
    """Return the first `lengths[b]` rows of each sequence of a padded array [B, T, …].

    Under `dlc.jit` with traced lengths, the number of rows is data-dependent.
    """
    array, counts = dnp.asarray(padded), dnp.asarray(lengths)
    if len(array.shape) < 2 or counts.shape != array.shape[:1]:
        problem = f"an array of shape {tuple(array.shape)} with lengths of shape {tuple(counts.shape)}"
        refuse(ShapeError(f"dlc.ragged.from_padded: {problem}; expected [B, T, …] and [B]"))
    is_row = dnp.expand_dims(dnp.arange(array.shape[1]), 0) < dnp.expand_dims(counts, 1)
    return Ragged(array[is_row], dnp.clip(counts, 0, array.shape[1]))


def from_torch(tensor: Any, /) -> Ragged:
    """Return the rows of a nested tensor of PyTorch with the layout `torch.jagged`; they share memory if they can."""
    if not getattr(tensor, "is_nested", False) or not hasattr(tensor, "offsets"):
        refuse(
            DTypeError(f"dlc.ragged.from_torch: a {type(tensor).__name__}; expected a nested tensor with layout torch.jagged")
        )
    if tensor.lengths() is not None:
        problem = "a nested tensor with rows between sequences; call .contiguous() first"
        refuse(DTypeError(f"dlc.ragged.from_torch: {problem}"))
    return Ragged(tensor.values().detach().numpy(), np.diff(tensor.offsets().numpy()))


def to_torch(x: Ragged, /) -> Any:
    """Return a nested tensor of PyTorch with the layout `torch.jagged`; its rows share memory if they can."""
    torch = import_module("torch")
    offsets = np.concatenate([np.zeros(1, np.int64), np.asarray(x.ends)])
    values = torch.from_numpy(np.ascontiguousarray(x.values))
    return torch.nested.nested_tensor_from_jagged(values, torch.from_numpy(offsets))

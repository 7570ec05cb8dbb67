"""Reductions over the rows of each sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.calculus.custom_rules import stop_gradient
from dlc.ragged.ragged_array import Ragged

__all__ = ["max", "mean", "softmax", "sum"]


def sum(x: Ragged, /) -> Any:
    """Return the sum of the rows of each sequence, [B, …]; 0 for an empty one. Integers are summed in 64 bits."""
    total = _total(x)
    return dnp.astype(total, x.dtype) if _is_half_precision(x.dtype) else total


def mean(x: Ragged, /) -> Any:
    """Return the mean of the rows of each sequence, [B, …]; NaN for an empty one."""
    total = _total(x)
    result = total / dnp.astype(dnp.reshape(x.lengths, (-1, *(1 for _ in x.values.shape[1:]))), total.dtype)
    return dnp.astype(result, x.dtype) if _is_half_precision(x.dtype) else result


def _total(x: Ragged) -> Any:
    """Return the sums in a wide type: integers in 64 bits, 16-bit floats in float32."""
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(x.dtype.kind, x.dtype)
    wide = np.dtype(np.float32 if _is_half_precision(x.dtype) else wide)
    return dnp.at(dnp.zeros((x.lengths.shape[0], *x.values.shape[1:]), wide))[x.sequence_ids].add(dnp.astype(x.values, wide))


def _is_half_precision(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def max(x: Ragged, /) -> Any:
    """Return the largest elements of the rows of each sequence, [B, …]; -∞, the lowest integer or False for an empty one."""
    if x.dtype.kind == "b":
        return max(Ragged(dnp.astype(x.values, np.uint8), x.lengths)) > 0
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    return dnp.at(dnp.full((x.lengths.shape[0], *x.values.shape[1:]), lowest, x.dtype))[x.sequence_ids].max(x.values)


def softmax(x: Ragged, /) -> Ragged:
    """Return exp(row) divided by the sum of exp over the rows of its sequence, elementwise."""
    ids = x.sequence_ids
    # Subtract the maximum: exp overflows f32 above 88.
    weights = Ragged(dnp.exp(x.values - dnp.take(stop_gradient(max(x)), ids, axis=0)), x.lengths)
    return Ragged(weights.values / dnp.take(sum(weights), ids, axis=0), x.lengths)

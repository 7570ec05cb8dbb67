"""Reductions over the rows of each sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.calculus.custom_rules import stop_gradient
from dlc.ragged.ragged_array import Ragged

__all__ = ["max", "mean", "softmax", "sum"]


def sum(x: Ragged, /) -> Any:
    """Return the sum of the rows of each sequence, [B, …]; 0 for an empty one."""
    return dnp.at(dnp.zeros((x.lengths.shape[0], *x.values.shape[1:]), x.dtype))[x.sequence_ids].add(x.values)


def mean(x: Ragged, /) -> Any:
    """Return the mean of the rows of each sequence, [B, …]; NaN for an empty one."""
    return sum(x) / dnp.astype(dnp.reshape(x.lengths, (-1, *(1 for _ in x.values.shape[1:]))), x.dtype)


def max(x: Ragged, /) -> Any:
    """Return the largest elements of the rows of each sequence, [B, …]; the lowest number, or -∞, for an empty one."""
    lowest = -np.inf if x.dtype.kind not in "biu" else np.iinfo(x.dtype).min
    return dnp.at(dnp.full((x.lengths.shape[0], *x.values.shape[1:]), lowest, x.dtype))[x.sequence_ids].max(x.values)


def softmax(x: Ragged, /) -> Ragged:
    """Return exp(row) divided by the sum of exp over the rows of its sequence, elementwise."""
    ids = x.sequence_ids
    # Subtract the maximum: exp overflows f32 above 88.
    weights = Ragged(dnp.exp(x.values - dnp.take(stop_gradient(max(x)), ids, axis=0)), x.lengths)
    return Ragged(weights.values / dnp.take(sum(weights), ids, axis=0), x.lengths)

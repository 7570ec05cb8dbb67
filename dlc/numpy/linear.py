"""Products of matrices."""

from __future__ import annotations

from typing import Any

from dlc.dialects import dl
from dlc.numpy.apply import ArrayLike, apply, promote


def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The matrix product over the last two axes; leading axes broadcast, rank 1 is a row or a column."""
    return apply(dl.MatmulOp, *promote(x1, x2))


def dot(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The sum of products over the last axis of `x1` and the first but one (or only) axis of `x2`."""
    a, b = promote(x1, x2)
    if a.ndim == 0 or b.ndim == 0:
        return apply(dl.MulOp, a, b)
    contracted = {"lhs_contract": (a.ndim - 1,), "rhs_contract": (max(b.ndim - 2, 0),)}
    return apply(dl.DotGeneralOp, a, b, lhs_batch=(), rhs_batch=(), **contracted)

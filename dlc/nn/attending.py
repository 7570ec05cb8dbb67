"""Attention: a mean of values, weighted by how well keys fit queries."""

from __future__ import annotations

import math
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.dims import Size
from dlc.errors import DTypeError
from dlc.nn.activations import softmax
from dlc.numpy import add, expand_dims, greater_equal, matmul, multiply, swapaxes, where
from dlc.numpy.apply import ArrayLike, convert, operand, places, promote_to_float, refuse

__all__ = ["attention"]


def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    /,
    *,
    mask: ArrayLike | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Any:
    """softmax(query · keyᵀ · scale) · value, for query [..., T, D], key [..., S, D] and value [..., S, E]: [..., T, E].

    `scale` is 1 / √D unless given. `mask`, which broadcasts to [..., T, S], is true where a query sees a key; `causal` lets
    query t see the keys up to t, counted from the last ones. A query that sees nothing gets zeros, and so do gradients.
    Raises DTypeError for a mask of floats, which others add to the scores.
    """
    if mask is not None and (dtype := operand(mask).dtype).kind not in "bui":
        # As truth values, 0 would hide what an added mask shows, and -inf show what it hides.
        refuse(
            DTypeError(
                f"dlc.nn.attention: mask of {dtype}, expected bools, true where a query sees a key; give `mask >= 0` where it "
                "would be added to scores, as 0 and -inf"
            )
        )
    q, k, v = promote_to_float(query, key, value)
    scores = multiply(matmul(q, swapaxes(k, -1, -2)), 1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    masks: list[Any] = [] if mask is None else [convert(mask, np.bool_)]
    if causal:
        masks.append(_causal(q.shape[-2], k.shape[-2]))
    if not masks:
        return matmul(softmax(scores), v)
    seen = masks[0] if len(masks) == 1 else masks[0] & masks[1]
    sees_some = mask is None and q.shape[-2] <= k.shape[-2]
    # Not an infinity where a row may have nothing else: it would be NaN, and its gradients.
    lowest = -math.inf if sees_some else float(cast(Any, ml_dtypes.finfo)(q.dtype).min) / 2
    weights = softmax(where(seen, scores, lowest))
    return matmul(weights if sees_some else where(seen, weights, 0), v)


def _causal(queries: Size, keys: Size) -> Any:
    """Where query t sees a key, by their places: those up to t, counted from the last ones."""
    # As ops, not as an array: a kernel of attention computes it, and has none to read.
    return greater_equal(add(expand_dims(places(queries), -1), keys - queries), places(keys))

"""Attention."""

from __future__ import annotations

import math
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.errors import DTypeError, ShapeError
from dlc.nn.activations import softmax
from dlc.numpy import add, expand_dims, greater_equal, matmul, maximum, multiply, reciprocal, sqrt, swapaxes, where
from dlc.numpy.apply import ArrayLike, convert, iota, operand, promote_to_float, refuse
from dlc.shapes.traced_dims import TracedSize

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
    """Return softmax(query · keyᵀ · scale) · value for query [..., T, D], key [..., S, D], value [..., S, E]: [..., T, E].

    `scale` is 1 / √D by default. `mask` broadcasts to [..., T, S] and is true where a query attends to a key; `causal` masks
    the keys after query t, where the last query is aligned with the last key. A fully masked query gives zeros, and zero
    gradients. Scores and weights of half precision are computed in float32. Raises DTypeError for a float mask, which other
    libraries add to the scores.
    """
    if mask is not None and (dtype := operand(mask).dtype).kind not in "bui":
        # Converted to bool, an additive mask would be inverted: 0 would mask, and -inf would unmask.
        refuse(
            DTypeError(
                f"dlc.nn.attention: mask of dtype {dtype}; expected bool, true where a query attends to a key; "
                "for an additive mask of 0 and -inf, pass `mask >= 0`"
            )
        )
    q, k, v = promote_to_float(query, key, value)
    if min(q.ndim, k.ndim, v.ndim) < 2:
        refuse(ShapeError(f"query, key and value of shapes {q.shape}, {k.shape} and {v.shape}; expected rank 2 or more"))
    # Without features all scores are 0, and no scale is needed.
    scores = attention_scores(q, k, scale)
    masks: list[Any] = [] if mask is None else [convert(mask, np.bool_)]
    if causal:
        masks.append(_causal(q.shape[-2], k.shape[-2]))
    if not masks:
        return matmul(convert(softmax(scores), v.dtype), v)
    unmasked = masks[0] if len(masks) == 1 else masks[0] & masks[1]
    has_unmasked_key = mask is None and q.shape[-2] <= k.shape[-2]
    # A fully masked row of infinities would give NaN, also in gradients; use a finite score where that may happen.
    lowest = -math.inf if has_unmasked_key else float(cast(Any, ml_dtypes.finfo)(scores.dtype).min) / 2
    weights = softmax(where(unmasked, scores, lowest))
    return matmul(convert(weights if has_unmasked_key else where(unmasked, weights, 0), v.dtype), v)


def attention_scores(query: Any, key: Any, scale: float | None) -> Any:
    """Return query · keyᵀ · scale; in float32 for half precision, since softmax magnifies the rounding of large scores."""
    q, k = (convert(x, np.promote_types(x.dtype, np.float32)) for x in (query, key))
    features = q.shape[-1]
    if scale is None:
        is_static = isinstance(features, int)
        scale = 1 / math.sqrt(max(features, 1)) if is_static else reciprocal(sqrt(convert(maximum(features, 1), q.dtype)))
    return multiply(matmul(q, swapaxes(k, -1, -2)), scale)


def _causal(queries: TracedSize, keys: TracedSize) -> Any:
    """Return the causal mask: query t attends to the keys up to t, where the last query is aligned with the last key."""
    # Computed by ops: the fused attention kernel evaluates the mask from positions instead of loading an array.
    return greater_equal(add(expand_dims(iota(queries), -1), keys - queries), iota(keys))

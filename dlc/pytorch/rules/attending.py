"""Attention, and the layers of a transformer that PyTorch has an operator for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import nn, special
from dlc.errors import UnsupportedError
from dlc.numpy.apply import convert, places, refuse
from dlc.pytorch.rules.contractions import linear
from dlc.pytorch.rules.normalization import layer_norm
from dlc.pytorch.rules.table import Table

table = Table()


@table("scaled_dot_product_attention")
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p:
        refuse(UnsupportedError(f"attention with dropout {dropout_p}; call .eval() on the module, or set it to 0"))
    key, value = (_for_heads_of(query, x) for x in (key, value))
    if not is_causal and (attn_mask is None or attn_mask.dtype == np.bool_):
        return nn.attention(query, key, value, mask=attn_mask, scale=scale)
    scores = _scores(query, key, scale)
    if is_causal:
        # Each query sees the first key at least.
        scores = dnp.where(_causal(query, key), scores, convert(-np.inf, scores.dtype))
        return dnp.matmul(nn.softmax(scores), value)
    scores = dnp.add(scores, convert(attn_mask, scores.dtype))
    # A query that sees nothing is 0.
    sees_some = dnp.not_equal(dnp.max(scores, -1, keepdims=True), convert(-np.inf, scores.dtype))
    return dnp.matmul(dnp.where(sees_some, nn.softmax(scores), convert(0, scores.dtype)), value)


def _for_heads_of(query: Any, x: Any) -> Any:
    """Keys or values of fewer heads than the queries have, each for a group of these."""
    if query.ndim < 3 or x.shape[-3] == query.shape[-3]:
        return x
    return dnp.repeat(x, query.shape[-3] // x.shape[-3], axis=-3)


def _scores(query: Any, key: Any, scale: float | None) -> Any:
    """How well each query fits each key; a mask of numbers is added to that."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return dnp.multiply(dnp.matmul(query, dnp.swapaxes(key, -1, -2)), factor)


def _causal(query: Any, key: Any) -> Any:
    """Query i sees the keys up to i, counted from the first."""
    queries, keys = places(query.shape[-2]), places(key.shape[-2])
    return dnp.greater_equal(dnp.expand_dims(queries, -1), keys)


@table("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    """Attention, and for each query the logarithm of the sum that its weights were divided by."""
    key, value = (_for_heads_of(query, x) for x in (key, value))
    y, scores = attention(query, key, value, attn_mask, dropout_p, is_causal, scale), _scores(query, key, scale)
    mask = _causal(query, key) if is_causal else attn_mask
    if mask is not None:
        scores = dnp.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else dnp.add(scores, convert(mask, scores.dtype))
    # The logarithm is not rounded to 16 bits.
    return y, special.logsumexp(convert(scores, np.promote_types(scores.dtype, np.float32)), -1)


@table("higher_order.flex_attention")
def flex_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Callable[..., Any],
    block_mask: Sequence[Any],
    scale: float,
    kernel_options: Any,
    score_mod_other_buffers: Sequence[Any] = (),
    mask_mod_other_buffers: Sequence[Any] = (),
) -> Any:
    """Attention whose scores a function changes, one by one, by their places: batch, head, query, key; another, the last of
    `block_mask`, says which keys are seen. A query that sees none is 0. The blocks are left out: they say the same."""
    key, value = (_for_heads_of(query, x) for x in (key, value))
    scores = convert(_scores(query, key, scale), np.promote_types(query.dtype, np.float32))
    place = [dnp.reshape(convert(places(n), np.int32), (n,) + (1,) * (3 - k)) for k, n in enumerate(scores.shape)]
    (changed,) = score_mod(scores, *place, *score_mod_other_buffers)
    (seen,) = block_mask[-1](*place, *mask_mod_other_buffers)
    changed, seen = dnp.broadcast_arrays(changed, seen)
    changed = dnp.where(seen, changed, convert(-np.inf, changed.dtype))
    largest = dnp.max(changed, -1, keepdims=True)
    rows = dnp.matmul(convert(nn.softmax(changed), value.dtype), value)
    rows = dnp.where(dnp.isneginf(largest), convert(0, rows.dtype), rows)
    return rows, special.logsumexp(changed, -1), dnp.squeeze(largest, -1)


@table("_native_multi_head_attention")
def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """Of [batch, length, embed_dim]; a mask hides where it is not 0: a matrix of queries and keys (0), the keys of each of the
    batch (1), or all of it (2)."""
    places, biases = ([x[k * embed_dim : (k + 1) * embed_dim] for k in range(3)] for x in (qkv_weight, qkv_bias))
    parts = [linear(x, w, b) for x, w, b in zip((query, key, value), places, biases, strict=True)]
    q, k, v = (dnp.swapaxes(dnp.reshape(x, (*x.shape[:2], num_head, embed_dim // num_head)), 1, 2) for x in parts)
    if mask is not None:
        hidden = convert(mask, np.bool_)
        mask = dnp.logical_not(dnp.expand_dims(hidden, (1, 2)) if mask_type == 1 else hidden)
    attended = dnp.swapaxes(nn.attention(q, k, v, mask=mask), 1, 2)
    result = linear(dnp.reshape(attended, query.shape), proj_weight, proj_bias)
    if not need_weights:
        return result, None
    scores = _scores(q, k, None)
    weights = nn.softmax(scores if mask is None else dnp.where(mask, scores, convert(-np.inf, scores.dtype)))
    return result, dnp.mean(weights, 1) if average_attn_weights else weights


@table("_transformer_encoder_layer_fwd")
def encoder_layer(
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    def attended(x: Any) -> Any:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type)[0]

    def fed(x: Any) -> Any:
        inner = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(nn.gelu(inner) if use_gelu else nn.relu(inner), ffn_weight_2, ffn_bias_2)

    x, norms = src, ((norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2))
    for part, norm in zip((attended, fed), norms, strict=True):
        if norm_first:
            x = dnp.add(x, part(layer_norm(x, (embed_dim,), *norm, eps)))
        else:
            x = layer_norm(dnp.add(x, part(x)), (embed_dim,), *norm, eps)
    return x

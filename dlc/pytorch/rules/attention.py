"""Attention, and the fused transformer layers of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import nn, special
from dlc.errors import UnsupportedError
from dlc.nn.dot_product_attention import attention_scores
from dlc.numpy.apply import convert, iota, refuse
from dlc.pytorch.rules.contractions import linear
from dlc.pytorch.rules.normalization import layer_norm
from dlc.pytorch.rules.rule_table import RuleTable
from dlc.shapes.traced_dims import untraced

table = RuleTable()


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
        refuse(UnsupportedError(f"attention with dropout_p {dropout_p}; expected 0: call .eval() on the module"))
    key, value = (_for_heads_of(query, x) for x in (key, value))
    if not is_causal and (attn_mask is None or attn_mask.dtype == np.bool_):
        return nn.attention(query, key, value, mask=attn_mask, scale=scale)
    scores = _masked_scores(query, key, attn_mask, is_causal, scale)
    # No query is fully masked by causality: each attends to the first key at least.
    weights = nn.softmax(scores) if is_causal else masked_softmax(scores)
    return dnp.matmul(convert(weights, value.dtype), value)


def masked_softmax(scores: Any) -> Any:
    """Return the softmax of each row of scores; 0 for a row of -inf only."""
    has_unmasked_key = dnp.not_equal(dnp.max(scores, -1, keepdims=True), convert(-np.inf, scores.dtype))
    return dnp.where(has_unmasked_key, nn.softmax(scores), convert(0, scores.dtype))


def _for_heads_of(query: Any, x: Any) -> Any:
    """Repeat keys or values that are shared by a group of query heads (grouped-query attention)."""
    if query.ndim < 3 or untraced(x.shape[-3]) == untraced(query.shape[-3]):
        return x
    return dnp.repeat(x, query.shape[-3] // x.shape[-3], axis=-3)


def _masked_scores(query: Any, key: Any, attn_mask: Any, is_causal: bool, scale: float | None) -> Any:
    """Return the attention scores, -inf where masked."""
    scores, mask = attention_scores(query, key, scale), _causal(query, key) if is_causal else attn_mask
    if mask is None:
        return scores
    if mask.dtype == np.bool_:
        return dnp.where(mask, scores, convert(-np.inf, scores.dtype))
    return dnp.add(scores, convert(mask, scores.dtype))


def _causal(query: Any, key: Any) -> Any:
    """Return the causal mask: query i attends to the keys up to i, counted from the first key."""
    queries, keys = iota(query.shape[-2]), iota(key.shape[-2])
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
    """Return attention and, for each query, the log-sum-exp of its scores."""
    key, value = (_for_heads_of(query, x) for x in (key, value))
    y = attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    scores = _masked_scores(query, key, attn_mask, is_causal, scale)
    return y, special.logsumexp(scores, -1)


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
    """Attention with scores modified by `score_mod(score, batch, head, query, key)`; a fully masked query gives 0.

    The last entry of `block_mask` is the mask function of (batch, head, query, key); its block lists are redundant and ignored.
    """
    key, value = (_for_heads_of(query, x) for x in (key, value))
    scores = attention_scores(query, key, scale)
    positions = [dnp.reshape(convert(iota(n), np.int32), (n,) + (1,) * (3 - k)) for k, n in enumerate(scores.shape)]
    (modified,) = score_mod(scores, *positions, *score_mod_other_buffers)
    (unmasked,) = block_mask[-1](*positions, *mask_mod_other_buffers)
    modified, unmasked = dnp.broadcast_arrays(modified, unmasked)
    modified = dnp.where(unmasked, modified, convert(-np.inf, modified.dtype))
    rows = dnp.matmul(convert(masked_softmax(modified), value.dtype), value)
    return rows, special.logsumexp(modified, -1), dnp.max(modified, -1)


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
    """Multi-head attention of [batch, length, embed_dim].

    `mask` is nonzero where attention is masked; `mask_type` 0: [query, key], 1: [batch, key], 2: [batch, head, query, key].
    """
    projections, biases = ([x[k * embed_dim : (k + 1) * embed_dim] for k in range(3)] for x in (qkv_weight, qkv_bias))
    projected = [linear(x, w, b) for x, w, b in zip((query, key, value), projections, biases, strict=True)]
    q, k, v = (dnp.swapaxes(dnp.reshape(x, (*x.shape[:2], num_head, embed_dim // num_head)), 1, 2) for x in projected)
    if mask is not None:
        masked = convert(mask, np.bool_)
        mask = dnp.logical_not(dnp.expand_dims(masked, (1, 2)) if mask_type == 1 else masked)
    attended = dnp.swapaxes(nn.attention(q, k, v, mask=mask), 1, 2)
    result = linear(dnp.reshape(attended, query.shape), proj_weight, proj_bias)
    if not need_weights:
        return result, None
    scores = attention_scores(q, k, None)
    scores = scores if mask is None else dnp.where(mask, scores, convert(-np.inf, scores.dtype))
    weights = convert(nn.softmax(scores), q.dtype)
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

    def feed_forward(x: Any) -> Any:
        inner = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(nn.gelu(inner) if use_gelu else nn.relu(inner), ffn_weight_2, ffn_bias_2)

    x, norms = src, ((norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2))
    for sublayer, norm in zip((attended, feed_forward), norms, strict=True):
        if norm_first:
            x = dnp.add(x, sublayer(layer_norm(x, (embed_dim,), *norm, eps)))
        else:
            x = layer_norm(dnp.add(x, sublayer(x)), (embed_dim,), *norm, eps)
    return x

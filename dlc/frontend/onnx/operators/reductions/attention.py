"""Attention and rotary position embedding, composed of basic ops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type, is_bool
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.tensors import dtype_of
from dlc.ir import i64
from dlc.shapes.dims import Size

table = ConverterTable()


@table("Attention", since=23)
def attention(node: OnnxNode) -> list[ImportedValue]:
    emit = node.emit
    q, k, v = (as_heads(node, node[i], "q_num_heads" if i == 0 else "kv_num_heads") for i in range(3))
    past_length: Size = 0
    past_key, past_value = node.get(4), node.get(5)
    if past_key is not None and past_value is not None:
        past_length = past_key.shape[2]
        k, v = emit(dl.ConcatOp, past_key, k, axis=2), emit(dl.ConcatOp, past_value, v, axis=2)
    present_key_value = k, v
    scale = score_scale(node, q)
    groups = q.shape[1] // k.shape[1]
    k, v = repeat_heads(node, k, groups), repeat_heads(node, v, groups)
    scores = emit(dl.MatmulOp, emit(dl.MulOp, q, scale), emit.transpose(k, (0, 1, 3, 2)))
    stages = [scores]
    softcap = node.real("softcap", 0.0)
    if softcap:
        scores = emit(dl.MulOp, emit(dl.TanhOp, emit(dl.DivOp, scores, emit.scalar(softcap, q))), emit.scalar(softcap, q))
    stages.append(scores)
    masked = _mask_scores(node, scores, past_length)
    stages.append(masked)
    weights = _softmax(node, masked, masked is not scores)
    stages.append(weights)
    y = emit(dl.MatmulOp, weights, v)
    if node[0].rank == 3:
        y = merge_heads(node, y)
    mode = node.integer("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(stages):
        raise ModelError(f"{node.description}: qk_matmul_output_mode must be 0 to 3, got {mode}")
    return [y, *present_key_value, stages[mode]]


def score_scale(node: OnnxNode, query: ImportedValue) -> ImportedValue:
    """Return the attribute `scale`, by default 1 / √D for queries [B, H, S, D]."""
    emit, scale, depth = node.emit, node.real("scale", 0.0), query.shape[3]
    if scale:
        return emit.scalar(scale, query)
    if isinstance(depth, int):
        return emit.scalar(1 / math.sqrt(max(depth, 1)), query)
    return emit(dl.RsqrtOp, emit.cast(emit.sizes(depth), query.element_type))


def as_heads(node: OnnxNode, x: ImportedValue, attribute: str) -> ImportedValue:
    """Return [B, S, H·D] or [B, H, S, D] as [B, H, S, D], with H from an attribute."""
    if x.rank == 4:
        node.ignore_attributes(attribute)
        return x
    count = node.integer(attribute)
    if x.rank != 3 or count < 1:
        raise ModelError(f"{node.description}: expected rank 3 with a positive {attribute}, or rank 4; got rank {x.rank}")
    return split_heads(node, x, count)


def split_heads(node: OnnxNode, x: ImportedValue, count: int) -> ImportedValue:
    """Return [B, S, H·D] as [B, H, S, D]."""
    batch, length, width = x.shape
    return node.emit.transpose(node.emit.reshape(x, (batch, length, count, width // count)), (0, 2, 1, 3))


def repeat_heads(node: OnnxNode, x: ImportedValue, count: Size) -> ImportedValue:
    """Repeat each head: [B, H, S, D] → [B, H·count, S, D], for grouped-query attention."""
    batch, heads, length, depth = x.shape
    if count == 1:
        return x
    repeated = node.emit.broadcast(node.emit.reshape(x, (batch, heads, 1, length, depth)), (batch, heads, count, length, depth))
    return node.emit.reshape(repeated, (batch, heads * count, length, depth))


def _mask_scores(node: OnnxNode, scores: ImportedValue, past_length: Size) -> ImportedValue:
    """Set the scores of masked keys to -inf: by the mask, by position, and at padding."""
    emit, mask, lowest = node.emit, node.get(3), node.emit.scalar(-np.inf, scores)
    queries, keys = scores.shape[2:]
    if mask is not None:
        if emit.is_less(mask.shape[-1], keys, node.description):
            # Keys beyond the size of the mask are masked.
            missing_keys = *mask.shape[:-1], keys - mask.shape[-1]
            fill = emit.full(False if is_bool(mask.element_type) else -np.inf, missing_keys, mask)
            mask = emit(dl.ConcatOp, mask, fill, axis=mask.rank - 1)
        scores = emit(dl.SelectOp, mask, scores, lowest) if is_bool(mask.element_type) else emit(dl.AddOp, scores, mask)
    lengths = node.get(6)
    if lengths is not None:
        lengths = emit.reshape(emit.cast(lengths, i64), (lengths.shape[0], 1, 1, 1))
        scores = emit(dl.SelectOp, emit(dl.LessOp, emit.iota(keys), lengths), scores, lowest)
    left, right = node.integer("left_window_size", -1), node.integer("right_window_size", -1)
    if node.flag("is_causal"):
        right = 0
    if max(left, right) < 0:
        return scores
    # Not constant-folded: fusion recognizes masks computed from positions and needs no mask tensor.
    query_positions, key_positions = (emit.unfolded(dl.IotaOp, size=(n,), to=i64, start=0, step=1)[0] for n in (queries, keys))
    # The position of a query among all keys, including past keys or those of the cache.
    position = emit.reshape(query_positions, (queries, 1))
    if lengths is not None:
        position = emit(dl.AddOp, emit(dl.SubOp, lengths, emit.sizes(queries)), position)
    elif past_length != 0:
        position = emit(dl.AddOp, position, emit.sizes(past_length))
    for window_size, comparison, sign in ((right, dl.LessEqualOp, 1), (left, dl.GreaterEqualOp, -1)):
        if window_size >= 0:
            bound = emit(dl.AddOp, position, emit.scalar(sign * window_size, position)) if window_size else position
            scores = emit(dl.SelectOp, emit(comparison, key_positions, bound), scores, lowest)
    return scores


def _softmax(node: OnnxNode, scores: ImportedValue, has_mask: bool) -> ImportedValue:
    emit = node.emit
    precision = node.integer("softmax_precision", 0)
    scores_in_precision = emit.cast(scores, element_type(dtype_of(precision))) if precision else scores
    softmax = masked_softmax(node, scores_in_precision) if has_mask else emit(dl.SoftmaxOp, scores_in_precision, axis=3)
    return emit.cast(softmax, scores.element_type)


def masked_softmax(node: OnnxNode, scores: ImportedValue) -> ImportedValue:
    """Return the softmax of scores [B, H, S, T] along T; 0, not 0/0, for a row of -inf only."""
    emit = node.emit
    max_score = emit(dl.ReduceMaxOp, scores, axes=(3,), keepdims=True)
    has_unmasked_key = emit(dl.GreaterOp, max_score, emit.scalar(-np.inf, scores))
    return emit(dl.SelectOp, has_unmasked_key, emit(dl.SoftmaxOp, scores, axis=3), emit.scalar(0.0, scores))


@table("RotaryEmbedding", since=23)
def rotary_embedding(node: OnnxNode) -> ImportedValue:
    x, positions = node[0], node.get(3)
    heads = as_heads(node, x, "num_heads")
    width = node.integer("rotary_embedding_dim", 0) or int(heads.shape[3])
    caches = [node[1], node[2]]
    if positions is not None:
        caches = [node.emit(dl.GatherOp, c, positions, axis=0) for c in caches]
    y = rotate_embedding(node, heads, caches, width, node.flag("interleaved"))
    return y if x.rank == 4 else merge_heads(node, y)


def merge_heads(node: OnnxNode, heads: ImportedValue) -> ImportedValue:
    """Return [B, H, S, D] as [B, S, H·D]."""
    batch, count, length, depth = heads.shape
    return node.emit.reshape(node.emit.transpose(heads, (0, 2, 1, 3)), (batch, length, count * depth))


def rotate_embedding(
    node: OnnxNode, heads: ImportedValue, caches: Sequence[ImportedValue], width: int, interleaved: bool
) -> ImportedValue:
    """Rotate pairs of the first `width` elements of D in [B, H, S, D] by the angles of each position.

    `caches` are cosines and sines, of B·S·width/2 elements each.
    """
    emit, (batch, _, length, depth) = node.emit, heads.shape
    half = width // 2
    cos, sin = (emit.reshape(c, (batch, 1, length, half)) for c in caches)
    rotary, unrotated = emit.slice(heads, 3, 0, width), emit.slice(heads, 3, width, depth)
    if interleaved:
        # [..., 2·half] as [..., half, 2]: the elements of a pair are adjacent.
        pairs = emit.reshape(rotary, (*rotary.shape[:3], half, 2))
        first, second = (emit.reshape(emit.slice(pairs, 4, k, k + 1), (*rotary.shape[:3], half)) for k in (0, 1))
    else:
        first, second = emit.slice(rotary, 3, 0, half), emit.slice(rotary, 3, half, width)
    real = emit(dl.SubOp, emit(dl.MulOp, cos, first), emit(dl.MulOp, sin, second))
    imaginary = emit(dl.AddOp, emit(dl.MulOp, sin, first), emit(dl.MulOp, cos, second))
    if interleaved:
        components = [emit.reshape(p, (*p.shape, 1)) for p in (real, imaginary)]
        rotary = emit.reshape(emit(dl.ConcatOp, *components, axis=4), rotary.shape)
    else:
        rotary = emit(dl.ConcatOp, real, imaginary, axis=3)
    return rotary if unrotated.shape[3] == 0 else emit(dl.ConcatOp, rotary, unrotated, axis=3)

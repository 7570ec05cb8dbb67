"""Transformer operators of `com.microsoft`, which ONNX Runtime's optimizer writes.

They are composed of basic ops: dlc's fusion finds attention kernels in them like in models without these operators.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.reductions.attention import (
    masked_softmax,
    merge_heads,
    repeat_heads,
    rotate_embedding,
    score_scale,
    split_heads,
)
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.problems import NodeProblem
from dlc.ir import i32, i64
from dlc.shapes.dims import Size

table = ConverterTable()


@table("FusedMatMul")
def fused_matmul(node: OnnxNode) -> ImportedValue:
    """Return alpha times the product of two matrices, each transposed if its attribute says so."""
    for name in ("transBatchA", "transBatchB"):
        if node.flag(name):
            raise NodeProblem("attribute", f"{name} = 1 is not supported; transpose the input by a Transpose node")
    a, b = (
        node.emit.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2)) if node.flag(name) and x.rank > 1 else x
        for x, name in ((node[0], "transA"), (node[1], "transB"))
    )
    y, alpha = node.emit(dl.MatmulOp, a, b), node.real("alpha", 1.0)
    return y if alpha == 1.0 else node.emit(dl.MulOp, y, node.emit.scalar(alpha, y))


@table("FastGelu")
def fast_gelu(node: OnnxNode) -> ImportedValue:
    x, bias = node[0], node.get(1)
    return node.emit(dl.GeluOp, x if bias is None else node.emit(dl.AddOp, x, bias), approximate="tanh")


@table("BiasGelu")
def bias_gelu(node: OnnxNode) -> ImportedValue:
    return node.emit(dl.GeluOp, node.emit(dl.AddOp, node[0], node[1]), approximate="none")


@table("Gelu")
def gelu(node: OnnxNode) -> ImportedValue:
    return node.emit(dl.GeluOp, node[0], approximate="none")


@table("QuickGelu")
def quick_gelu(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    return emit(dl.MulOp, x, emit(dl.SigmoidOp, emit(dl.MulOp, x, emit.scalar(node.real("alpha", 1.702), x))))


def _sum(node: OnnxNode, *terms: ImportedValue | None) -> ImportedValue:
    """Add the terms that are not None."""
    total, *other_terms = (t for t in terms if t is not None)
    for term in other_terms:
        total = node.emit(dl.AddOp, total, term)
    return total


def _require_no_statistics(node: OnnxNode, *outputs: int) -> None:
    """Raise NodeProblem if the model uses these outputs."""
    if any(node.is_output_used(k) for k in outputs):
        raise NodeProblem("output", "the outputs mean and deviation are not supported; export without them")


@table("SkipLayerNormalization")
def skip_layer_normalization(node: OnnxNode) -> list[ImportedValue]:
    """Outputs: the normalized sum, its mean and deviation, and the sum."""
    _require_no_statistics(node, 1, 2)
    total = _sum(node, node[0], node[1], node.get(4))
    operands = [total, node[2]] + ([beta] if (beta := node.get(3)) is not None else [])
    y = node.emit(dl.LayerNormOp, *operands, axis=total.rank - 1, epsilon=node.real("epsilon", 1e-12))
    return [y, total, total, total]


@table("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(node: OnnxNode) -> list[ImportedValue]:
    _require_no_statistics(node, 1, 2)
    total = _sum(node, node[0], node[1], node.get(3))
    y = node.emit(dl.RmsNormOp, total, node[2], axis=total.rank - 1, epsilon=node.real("epsilon", 1e-12))
    return [y, total, total, total]


@table("EmbedLayerNormalization")
def embed_layer_normalization(node: OnnxNode) -> list[ImportedValue]:
    """Outputs: the normalized sum of the embeddings, the number of unmasked positions of each row, and the sum."""
    emit, ids = node.emit, node[0]
    node.ignore_attributes("mask_index_type")
    batch, length = ids.shape
    position_ids, segments, segment_table, mask = node.get(8), node.get(1), node.get(4), node.get(7)

    def rows(table_: ImportedValue, row_ids: ImportedValue) -> ImportedValue:
        return emit(dl.GatherOp, table_, row_ids, axis=0)

    positions = emit.slice(node[3], 0, 0, length) if position_ids is None else rows(node[3], position_ids)
    segment = None if segments is None or segment_table is None else rows(segment_table, segments)
    total = _sum(node, rows(node[2], ids), positions, segment)
    y = emit(dl.LayerNormOp, total, node[5], node[6], axis=2, epsilon=node.real("epsilon", 1e-12))
    if mask is None:
        return [y, emit.full(0, (batch,), i32), total]
    return [y, emit(dl.ReduceSumOp, emit.cast(mask, i32), axes=(1,), keepdims=False), total]


@table("RotaryEmbedding")
def rotary_embedding(node: OnnxNode) -> ImportedValue:
    x, positions = node[0], node[1]
    if node.flag("is_packed_batching") or node.real("scale", 1.0) != 1:
        raise NodeProblem("attribute", "packed batches and a scale are not supported")
    half = int(node[2].shape[1])
    count, width = node.integer("num_heads", 0), node.integer("rotary_embedding_dim", 0) or 2 * half
    if x.rank == 3 and not count:
        count = int(x.shape[2]) // width
    heads = x if x.rank == 4 else split_heads(node, x, count)
    batch, _, length, _ = heads.shape
    if positions.rank == 1:
        # The position of the first token.
        offsets = node.emit(dl.AddOp, node.emit.iota(length), node.emit.cast(positions, i64))
        positions = node.emit.broadcast(offsets, (batch, length))
    y = rotate_embedding(node, heads, _gather_caches(node, (node[2], node[3]), positions), width, node.flag("interleaved"))
    return y if x.rank == 4 else merge_heads(node, y)


def _gather_caches(node: OnnxNode, caches: Sequence[ImportedValue], positions: ImportedValue) -> list[ImportedValue]:
    """Gather rows of the cosine and sine caches."""
    return [node.emit(dl.GatherOp, cache, positions, axis=0) for cache in caches]


@table("Attention")
def attention(node: OnnxNode) -> list[ImportedValue]:
    """Queries, keys and values are one product with the input, concatenated along the last axis."""
    emit, count = node.emit, node.integer("num_heads")
    if node.flag("do_rotary") or node.flag("past_present_share_buffer") or node.get(6) is not None:
        raise NodeProblem("attribute", "do_rotary and past_present_share_buffer are not supported")
    projected = _sum(node, emit(dl.MatmulOp, node[0], node[1]), node.get(2))
    hidden_size = int(projected.shape[2]) // 3
    widths = node.integers("qkv_hidden_sizes", ()) or (hidden_size, hidden_size, hidden_size)
    ends = np.cumsum(widths).tolist()
    projections = [emit.slice(projected, 2, end - width, end) for end, width in zip(ends, widths, strict=True)]
    q, k, v = (split_heads(node, projection, count) for projection in projections)
    past_length: Size = 0
    if (past := node.get(4)) is not None:
        past_length = past.shape[3]
        k, v = (
            emit(dl.ConcatOp, emit.reshape(emit.slice(past, 0, i, i + 1), past.shape[1:]), new, axis=2)
            for i, new in enumerate((k, v))
        )
    present = [emit.reshape(x, (1, *x.shape)) for x in (k, v)] if node.is_output_used(1) else []
    y = _attention(node, q, k, v, node.get(3), node.get(5), past_length)
    return [merge_heads(node, y), *([emit(dl.ConcatOp, *present, axis=0)] if present else [])]


@table("MultiHeadAttention")
def multi_head_attention(node: OnnxNode) -> list[ImportedValue]:
    emit, count, query, key, value = node.emit, node.integer("num_heads"), node[0], node.get(1), node.get(2)
    if node.get(8) is not None or node.get(9) is not None or node.is_output_used(3):
        raise NodeProblem("input", "past_sequence_length, cache_indirection and the output qk are not supported")
    if key is None or value is None or 5 in (query.rank, key.rank):
        raise NodeProblem("input", "queries, keys and values in one tensor are not supported; give three")
    q, k, v = (x if x.rank == 4 else split_heads(node, x, count) for x in (query, key, value))
    if (bias := node.get(3)) is not None:
        widths = [count * int(x.shape[3]) for x in (q, k, v)]
        limits = np.cumsum(widths).tolist()
        biases = [emit.slice(bias, 0, limit - width, limit) for limit, width in zip(limits, widths, strict=True)]
        q, k, v = (
            # Keys of rank 4 come from cross-attention and already include the bias.
            x if original.rank == 4 else emit(dl.AddOp, x, emit.reshape(b, (1, count, 1, x.shape[3])))
            for x, b, original in zip((q, k, v), biases, (query, key, value), strict=True)
        )
    past_length: Size = 0
    past = node.get(6), node.get(7)
    if past[0] is not None and past[1] is not None:
        past_length = past[0].shape[2]
        k, v = emit(dl.ConcatOp, past[0], k, axis=2), emit(dl.ConcatOp, past[1], v, axis=2)
    return [merge_heads(node, _attention(node, q, k, v, node.get(4), node.get(5), past_length)), k, v]


@table("GroupQueryAttention")
def group_query_attention(node: OnnxNode) -> list[ImportedValue]:
    """`seqlens_k` is the position of the last key of each row: later keys are padding.

    A preallocated cache that is longer than its contents is not supported.
    """
    emit, query, key, value = node.emit, node[0], node.get(1), node.get(2)
    count, groups = node.integer("num_heads"), node.integer("kv_num_heads")
    for name, default in (("smooth_softmax", 0), ("k_quant_type", "NONE"), ("v_quant_type", "NONE")):
        if node.has_attribute(name) and (node.integer(name) if default == 0 else node.string(name)) not in (default, -1):
            raise NodeProblem("attribute", f"{name} is not supported")
    if node.get(11) is not None:
        raise NodeProblem("input", "head_sink is not supported")
    if key is None or value is None:
        depth = int(query.shape[2]) // (count + 2 * groups)
        ends = [count * depth, (count + groups) * depth, (count + 2 * groups) * depth]
        query, key, value = (emit.slice(query, 2, low, high) for low, high in zip((0, *ends), ends, strict=False))
    q, k, v = split_heads(node, query, count), split_heads(node, key, groups), split_heads(node, value, groups)
    batch, _, length, depth = q.shape
    past_key, past_value = node.get(3), node.get(4)
    past_length: Size = 0 if past_key is None else past_key.shape[2]
    (total,) = node.sizes(6, "the length of all keys") or (0,)
    if total != past_length + length:
        raise NodeProblem("input", f"a cache of length {past_length} for {total} keys, {length} of them new, is not supported")
    last = emit.reshape(emit.cast(node[5], i64), (batch, 1))
    # The position of each query: a prompt begins at 0, and positions after the last key are padding.
    first = emit.sizes(0) if past_length == 0 else emit(dl.SubOp, last, emit.sizes(length - 1))
    positions = emit.broadcast(emit(dl.AddOp, emit.iota(length), first), (batch, length))
    if node.flag("do_rotary"):
        caches, width = _gather_caches(node, (node[7], node[8]), node.get(9) or positions), 2 * int(node[7].shape[1])
        q, k = (rotate_embedding(node, x, caches, width, node.flag("rotary_interleaved")) for x in (q, k))
    else:
        node.ignore_attributes("rotary_interleaved")
        for unused in (7, 8, 9):
            node.ignore_input(unused)
    if past_key is not None and past_value is not None:
        k, v = emit(dl.ConcatOp, past_key, k, axis=2), emit(dl.ConcatOp, past_value, v, axis=2)
    scores = _scores(node, q, repeat_heads(node, k, count // groups))
    if cap := node.real("softcap", 0.0):
        scores = emit(dl.MulOp, emit(dl.TanhOp, emit(dl.DivOp, scores, emit.scalar(cap, q))), emit.scalar(cap, q))
    scores, keys, ends = _sum(node, scores, node.get(10)), emit.iota(total), emit.reshape(last, (batch, 1, 1, 1))
    if past_length == 0:
        # A separate mask that depends on positions only, so that no mask tensor is needed.
        positions = emit.reshape(emit.iota(length), (length, 1))
        unmasked = [emit(dl.LessEqualOp, keys, ends), emit(dl.LessEqualOp, keys, positions)]
    else:
        positions = emit.reshape(positions, (batch, 1, length, 1))
        unmasked = [emit(dl.LessEqualOp, keys, emit(dl.MinimumOp, positions, ends))]
    if (window := node.integer("local_window_size", -1)) > 0:
        unmasked.append(emit(dl.GreaterOp, keys, emit(dl.SubOp, positions, emit.sizes(window))))
    for mask in unmasked:
        scores = emit(dl.SelectOp, mask, scores, emit.scalar(-np.inf, q))
    # Of padding, the window may contain no key.
    weights = masked_softmax(node, scores) if window > 0 else emit(dl.SoftmaxOp, scores, axis=3)
    y = emit(dl.MatmulOp, weights, repeat_heads(node, v, count // groups))
    return [merge_heads(node, y), k, v]


def _scores(node: OnnxNode, query: ImportedValue, k: ImportedValue) -> ImportedValue:
    emit = node.emit
    return emit(dl.MulOp, emit(dl.MatmulOp, query, emit.transpose(k, (0, 1, 3, 2))), score_scale(node, query))


def _attention(
    node: OnnxNode,
    query: ImportedValue,
    k: ImportedValue,
    value: ImportedValue,
    mask: ImportedValue | None,
    bias: ImportedValue | None,
    past_length: Size,
) -> ImportedValue:
    """Return softmax(q·kᵀ·scale + bias)·v, with `mask_filter_value` added at masked keys."""
    emit, (batch, _, queries, _), keys = node.emit, query.shape, k.shape[2]
    lowest = emit.scalar(node.real("mask_filter_value", -10000.0), query)
    zero = emit.scalar(0.0, query)
    scores = _sum(node, _scores(node, query, k), bias)
    if mask is not None:
        if mask.shape == (batch,):
            # The number of keys of each row.
            unmasked = emit(dl.LessOp, emit.iota(keys), emit.reshape(emit.cast(mask, i64), (batch, 1, 1, 1)))
        elif mask.shape in ((batch, keys), (batch, queries, keys)):
            rows = 1 if mask.rank == 2 else queries
            unmasked = emit(dl.GreaterOp, emit.reshape(mask, (batch, 1, rows, keys)), emit.scalar(0, mask))
        else:
            raise NodeProblem(
                "input", f"a mask of shape {list(mask.shape)} for {queries} queries and {keys} keys is not supported"
            )
        scores = emit(dl.AddOp, scores, emit(dl.SelectOp, unmasked, zero, lowest))
    if node.flag("unidirectional"):
        positions = emit(dl.AddOp, emit.reshape(emit.iota(queries), (queries, 1)), emit.sizes(past_length))
        unmasked = emit(dl.LessEqualOp, emit.iota(keys), positions)
        scores = emit(dl.SelectOp, unmasked, scores, emit.scalar(-np.inf, query))
    return emit(dl.MatmulOp, emit(dl.SoftmaxOp, scores, axis=3), value)

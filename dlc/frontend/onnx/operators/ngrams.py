"""TfIdfVectorizer: count n-grams of integers or strings by comparing shifted rows with each n-gram."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.values import StringTensor
from dlc.frontend.problems import NodeProblem

table = ConverterTable()
_F32 = ELEMENT_TYPES["float32"]


@table("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(node: OnnxNode) -> ImportedValue:
    """Return `y[.., g]`: the count of n-gram g in a row, with up to `max_skip_count` skips; optionally weighted or binary."""
    emit, mode = node.emit, node.choice("mode", "TF", ("TF", "IDF", "TFIDF"))
    shortest, longest, skips = (node.integer(name) for name in ("min_gram_length", "max_gram_length", "max_skip_count"))
    grams, columns = _grams(node), np.asarray(node.integers("ngram_indexes"), np.int64)
    count = sum(len(grams_of_length) for grams_of_length in grams)
    weights = np.asarray(node.reals("weights", (1.0,) * count), np.float32)
    if not count or len(columns) != count or len(weights) != count or sorted(columns) != list(range(count)):
        raise ModelError(f"{node.description}: {len(columns)} ngram_indexes and {len(weights)} weights for {count} n-grams")
    counts = [
        _occurrences(node, grams_of_length, skips if length > 1 else 0, shortest <= length <= longest)
        for length, grams_of_length in enumerate(grams, 1)
        if len(grams_of_length)
    ]
    rank = node[0].rank
    y = emit(dl.ConcatOp, *counts, axis=rank - 1) if len(counts) > 1 else counts[0]
    order = np.argsort(columns)
    y = emit(dl.GatherOp, y, emit.constant(order), axis=rank - 1)
    if mode == "IDF":
        y = emit.cast(emit(dl.GreaterOp, y, emit.scalar(0, y)), _F32)
    return y if mode == "TF" else emit(dl.MulOp, y, emit.constant(weights[order]))


def _grams(node: OnnxNode) -> list[Array]:
    """Return the n-grams of each length, from 1 on, one per row."""
    if texts := node.strings("pool_strings", ()):
        text_ids = StringTensor.from_strings(node.emit, np.asarray(texts, object)).constant_value
        assert text_ids is not None
        pool: Array = text_ids
        node.ignore_attributes("pool_int64s")
    else:
        pool = np.asarray(node.integers("pool_int64s"), np.int64)
    if bool(texts) != isinstance(node[0], StringTensor):
        raise NodeProblem("dtype", "its pool and its input must both be strings or both be integers")
    starts = [*node.integers("ngram_counts"), len(pool)]
    pools = [pool[start:end] for start, end in pairwise(starts)]
    if any(len(pool_of_length) % length for length, pool_of_length in enumerate(pools, 1)):
        raise ModelError(f"{node.description}: ngram_counts {starts[:-1]} do not split a pool of {len(pool)} into n-grams")
    return [pool_of_length.reshape(-1, length) for length, pool_of_length in enumerate(pools, 1)]


def _occurrences(node: OnnxNode, grams: Array, skips: int, is_counted: bool) -> ImportedValue:
    """Count the occurrences of each n-gram of one length in each row, as f32."""
    emit, x, (count, length) = node.emit, node[0], grams.shape
    axis, grams = x.rank - 1, grams.astype(numpy_dtype(x.element_type))
    size = x.shape[axis]
    if not isinstance(size, int):
        raise NodeProblem("value", f"the length {size} of its rows must be static; give the model's input shapes")
    total = emit.full(0, (*x.shape[:-1], count), _F32)
    for distance in range(1, skips + 2) if is_counted else ():
        num_positions = size - (length - 1) * distance
        if num_positions < 1:
            break
        matches_by_element = [
            emit(
                dl.EqualOp,
                emit.reshape(
                    emit.slice(x, axis, k * distance, k * distance + num_positions), (*x.shape[:-1], num_positions, 1)
                ),
                emit.constant(np.ascontiguousarray(grams[:, k])),
            )
            for k in range(length)
        ]
        all_equal = matches_by_element[0]
        for matches in matches_by_element[1:]:
            all_equal = emit(dl.AndOp, all_equal, matches)
        total = emit(dl.AddOp, total, emit(dl.ReduceSumOp, emit.cast(all_equal, _F32), axes=(axis,)))
    return total

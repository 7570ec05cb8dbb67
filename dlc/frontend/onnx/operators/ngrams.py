"""How often runs of numbers or words occur: TfIdfVectorizer, as comparisons of shifted rows with what is looked for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.frontend.onnx.values import Text
from dlc.frontend.problems import NodeProblem

table = Table()
_F32 = ELEMENT_TYPES["float32"]


@table("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(node: Node) -> Value:
    """`y[.., g]`: how often n-gram g occurs in a row with up to so many words left out between two; weighted, or only if."""
    emit, mode = node.emit, node.choice("mode", "TF", ("TF", "IDF", "TFIDF"))
    shortest, longest, skips = (node.integer(name) for name in ("min_gram_length", "max_gram_length", "max_skip_count"))
    grams, columns = _grams(node), np.asarray(node.integers("ngram_indexes"), np.int64)
    count = sum(len(of_length) for of_length in grams)
    weights = np.asarray(node.reals("weights", (1.0,) * count), np.float32)
    if not count or len(columns) != count or len(weights) != count or sorted(columns) != list(range(count)):
        raise ModelError(f"{node.place}: {len(columns)} ngram_indexes and {len(weights)} weights for {count} n-grams")
    found = [
        _occurrences(node, of_length, skips if length > 1 else 0, shortest <= length <= longest)
        for length, of_length in enumerate(grams, 1)
        if len(of_length)
    ]
    rank = node[0].rank
    y = emit(dl.ConcatOp, *found, axis=rank - 1) if len(found) > 1 else found[0]
    order = np.argsort(columns)
    y = emit(dl.GatherOp, y, emit.constant(order), axis=rank - 1)
    if mode == "IDF":
        y = emit.cast(emit(dl.GreaterOp, y, emit.scalar(0, y)), _F32)
    return y if mode == "TF" else emit(dl.MulOp, y, emit.constant(weights[order]))


def _grams(node: Node) -> list[Array]:
    """The n-grams of each length, from 1 on, one a row."""
    if texts := node.texts("pool_strings", ()):
        known = Text.known_as(node.emit, np.asarray(texts, object)).known
        assert known is not None
        pool: Array = known
        node.ignore("pool_int64s")
    else:
        pool = np.asarray(node.integers("pool_int64s"), np.int64)
    if bool(texts) != isinstance(node[0], Text):
        raise NodeProblem("dtype", "its pool is text and its input is not, or the other way round")
    starts = [*node.integers("ngram_counts"), len(pool)]
    parts = [pool[start:end] for start, end in pairwise(starts)]
    if any(len(part) % length for length, part in enumerate(parts, 1)):
        raise ModelError(f"{node.place}: ngram_counts {starts[:-1]} do not part a pool of {len(pool)} into n-grams")
    return [part.reshape(-1, length) for length, part in enumerate(parts, 1)]


def _occurrences(node: Node, grams: Array, skips: int, counted: bool) -> Value:
    """How often each n-gram of one length occurs in each row, as f32."""
    emit, x, (count, length) = node.emit, node[0], grams.shape
    axis, grams = x.rank - 1, grams.astype(numpy_dtype(x.element_type))
    size = x.shape[axis]
    if not isinstance(size, int):
        raise NodeProblem("value", f"the length {size} of its rows must be known; give the model's input shapes")
    total = emit.full(0, (*x.shape[:-1], count), _F32)
    for apart in range(1, skips + 2) if counted else ():
        places = size - (length - 1) * apart
        if places < 1:
            break
        equal = [
            emit(
                dl.EqualOp,
                emit.reshape(emit.slice(x, axis, k * apart, k * apart + places), (*x.shape[:-1], places, 1)),
                emit.constant(np.ascontiguousarray(grams[:, k])),
            )
            for k in range(length)
        ]
        all_equal = equal[0]
        for one in equal[1:]:
            all_equal = emit(dl.AndOp, all_equal, one)
        total = emit(dl.AddOp, total, emit(dl.ReduceSumOp, emit.cast(all_equal, _F32), axes=(axis,)))
    return total

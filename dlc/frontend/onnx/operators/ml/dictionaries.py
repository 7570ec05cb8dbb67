"""Maps as rows of a table: a map input is two vectors, its keys and its values, whose length is a run-time value."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators import strings
from dlc.frontend.onnx.operators.ml.labels import lookup
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.values import MapValue, StringTensor
from dlc.frontend.problems import NodeProblem

table = ConverterTable()
_TYPES = {"TO_FLOAT": ELEMENT_TYPES["float32"], "TO_INT64": ELEMENT_TYPES["int64"], "TO_STRING": None}


@table("CastMap")
def cast_map(node: OnnxNode) -> ImportedValue:
    """Return the values of a map in key order (DENSE), or each at the index that its key specifies (SPARSE).

    Other elements of a sparse row are 0 or "".
    """
    emit, mapping = node.emit, _map(node)
    to = _TYPES[node.choice("cast_to", "TO_FLOAT", tuple(_TYPES))]
    values = mapping.values
    values = strings.cast_string(node, values, to) if to is None or isinstance(values, StringTensor) else emit.cast(values, to)
    count = node.integer("max_map", 1)
    if node.choice("map_form", "DENSE", ("DENSE", "SPARSE")) == "DENSE":
        return _like_strings(values, emit.reshape(values, (1, *values.shape)))
    if isinstance(mapping.keys, StringTensor):
        raise NodeProblem("dtype", "string keys are not indices; expected integer keys")
    low, high = emit.scalar(0, mapping.keys), emit.scalar(count, mapping.keys)
    is_outside = emit(dl.OrOp, emit(dl.LessOp, mapping.keys, low), emit(dl.GreaterEqualOp, mapping.keys, high))
    is_outside = emit(dl.ReduceAnyOp, is_outside, axes=(0,))
    emit.require(emit(dl.NotOp, is_outside), f"{node.description}: a key is outside a row of size {count}")
    return _row(node, mapping.keys, values, count)


@table("DictVectorizer")
def dict_vectorizer(node: OnnxNode) -> ImportedValue:
    """Return the values of a map in the order of a vocabulary of keys; other keys are dropped."""
    emit, mapping = node.emit, _map(node)
    string_keys, integer_keys = node.strings("string_vocabulary", ()), node.integers("int64_vocabulary", ())
    if bool(string_keys) == bool(integer_keys):
        raise ModelError(f"{node.description}: it needs one vocabulary, of strings or of integers")
    if bool(string_keys) != isinstance(mapping.keys, StringTensor):
        raise NodeProblem("dtype", "its vocabulary and the keys of its input must both be strings or both be integers")
    count = len(string_keys) or len(integer_keys)
    vocabulary = (
        StringTensor.from_strings(emit, np.asarray(string_keys, object))
        if string_keys
        else emit.constant(np.asarray(integer_keys, np.int64))
    )
    indices, dropped_index = emit.constant(np.arange(count)), emit.constant(count, np.int64)
    return _row(node, lookup(node, mapping.keys, vocabulary, indices, dropped_index), mapping.values, count)


def _map(node: OnnxNode) -> MapValue:
    mapping = node[0]
    if not isinstance(mapping, MapValue):
        raise NodeProblem("input", f"{mapping} is not supported here, expected a map")
    return mapping


def _row(node: OnnxNode, indices: ImportedValue, values: ImportedValue, count: int) -> ImportedValue:
    """Scatter each value to its index in a row [1, count]; the index `count` drops it."""
    emit = node.emit
    fill = (
        StringTensor.from_strings(emit, np.asarray("", object)) if isinstance(values, StringTensor) else emit.scalar(0, values)
    )
    rows = emit.reshape(indices, (*indices.shape, 1))
    filled = emit(dl.ScatterNdOp, emit.broadcast(fill, (count + 1,)), rows, values, mode="none")
    return _like_strings(values, emit.reshape(emit.slice(filled, 0, 0, count), (1, count)))


def _like_strings(values: ImportedValue, results: ImportedValue) -> ImportedValue:
    return StringTensor.of(results) if isinstance(values, StringTensor) else results

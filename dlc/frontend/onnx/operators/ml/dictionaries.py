"""Dicts as rows of a table: an input of the model is one, whose keys and values are two vectors as long as a call has it."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators import text
from dlc.frontend.onnx.operators.ml.labels import looked_up
from dlc.frontend.onnx.registry import Table
from dlc.frontend.onnx.values import MapValue, Text
from dlc.frontend.problems import NodeProblem

table = Table()
_TYPES = {"TO_FLOAT": ELEMENT_TYPES["float32"], "TO_INT64": ELEMENT_TYPES["int64"], "TO_STRING": None}


@table("CastMap")
def cast_map(node: Node) -> Value:
    """The values of a dict by their keys, in order, or each where its key says, zeros (texts of no letter) elsewhere."""
    emit, given = node.emit, _map(node)
    to = _TYPES[node.choice("cast_to", "TO_FLOAT", tuple(_TYPES))]
    values = given.values
    values = text.converted(node, values, to) if to is None or isinstance(values, Text) else emit.cast(values, to)
    count = node.integer("max_map", 1)
    if node.choice("map_form", "DENSE", ("DENSE", "SPARSE")) == "DENSE":
        return _like(values, emit.reshape(values, (1, *values.shape)))
    if isinstance(given.keys, Text):
        raise NodeProblem("dtype", "keys of text are no places; expected integers")
    low, high = emit.scalar(0, given.keys), emit.scalar(count, given.keys)
    outside = emit(dl.OrOp, emit(dl.LessOp, given.keys, low), emit(dl.GreaterEqualOp, given.keys, high))
    outside = emit(dl.ReduceAnyOp, outside, axes=(0,))
    emit.require(emit(dl.NotOp, outside), f"{node.place}: a key is no place in a row of {count}")
    return _row(node, given.keys, values, count)


@table("DictVectorizer")
def dict_vectorizer(node: Node) -> Value:
    """The values of a dict in the order of a vocabulary of its keys; what is at others is left out."""
    emit, given = node.emit, _map(node)
    texts, numbers = node.texts("string_vocabulary", ()), node.integers("int64_vocabulary", ())
    if bool(texts) == bool(numbers):
        raise ModelError(f"{node.place}: it needs one vocabulary, of texts or of integers")
    if bool(texts) != isinstance(given.keys, Text):
        raise NodeProblem("dtype", "its vocabulary is text and the keys of its input are not, or the other way round")
    count = len(texts) or len(numbers)
    words = Text.known_as(emit, np.asarray(texts, object)) if texts else emit.constant(np.asarray(numbers, np.int64))
    places, none = emit.constant(np.arange(count)), emit.constant(count, np.int64)
    return _row(node, looked_up(node, given.keys, words, places, none), given.values, count)


def _map(node: Node) -> MapValue:
    given = node[0]
    if not isinstance(given, MapValue):
        raise NodeProblem("input", f"{given} is not supported here, only a dict")
    return given


def _row(node: Node, places: Value, values: Value, count: int) -> Value:
    """[1, count]: each value at its place, that of `count` nowhere."""
    emit = node.emit
    nothing = Text.known_as(emit, np.asarray("", object)) if isinstance(values, Text) else emit.scalar(0, values)
    rows = emit.reshape(places, (*places.shape, 1))
    filled = emit(dl.ScatterNdOp, emit.broadcast(nothing, (count + 1,)), rows, values, mode="none")
    return _like(values, emit.reshape(emit.slice(filled, 0, 0, count), (1, count)))


def _like(values: Value, made: Value) -> Value:
    return Text.of(made) if isinstance(values, Text) else made

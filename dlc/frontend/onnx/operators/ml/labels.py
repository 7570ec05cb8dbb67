"""Labels and categories: numbers or text for other numbers or text, and columns for categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float, numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators.ml.scores import classes_of
from dlc.frontend.onnx.registry import Table
from dlc.frontend.onnx.values import Maps, Text
from dlc.frontend.problems import NodeProblem

table = Table()
_I64, _F32 = ELEMENT_TYPES["int64"], ELEMENT_TYPES["float32"]
# By the ends of the names of attributes.
_KINDS = ("int64s", "floats", "strings")


@table("LabelEncoder")
def label_encoder(node: Node) -> Value:
    """Keys become values, all else a default."""
    if node.has("classes_strings"):
        return _mapped(node, "classes_strings", range(len(node.texts("classes_strings", ()))))
    keys, values = _listed(node, "keys"), _listed(node, "values")
    if keys is None or values is None:
        raise ModelError(f"{node.place}: it has no keys or no values")
    return looked_up(node, node[0], keys, values, _default(node, values))


@table("CategoryMapper")
def category_mapper(node: Node) -> Value:
    return _mapped(node, "cats_strings", node.integers("cats_int64s", ()))


def _mapped(node: Node, texts: str, numbers: Sequence[int]) -> Value:
    """Text becomes the number that stands beside it in the lists, and numbers become text."""
    names = Text.known_as(node.emit, np.asarray(node.texts(texts, ()), object))
    of_names = node.emit.constant(np.asarray(numbers, np.int64))
    if isinstance(node[0], Text):
        node.ignore("default_string")
        return looked_up(node, node[0], names, of_names, node.emit.constant(node.integer("default_int64", -1), np.int64))
    node.ignore("default_int64")
    default = Text.known_as(node.emit, np.asarray(node.text("default_string", "_Unused"), object))
    return looked_up(node, node[0], of_names, names, default)


def _listed(node: Node, name: str) -> Value | None:
    """A list of one of the kinds that there are, or a tensor."""
    if node.has(f"{name}_tensor"):
        return node.array(f"{name}_tensor")
    given = [kind for kind in _KINDS if node.has(f"{name}_{kind}")]
    match given:
        case ["strings"]:
            return Text.known_as(node.emit, np.asarray(node.texts(f"{name}_strings", ()), object))
        case ["floats"]:
            return node.emit.constant(np.asarray(node.reals(f"{name}_floats"), np.float32))
        case ["int64s"]:
            return node.emit.constant(np.asarray(node.integers(f"{name}_int64s"), np.int64))
        case _:
            return None


def _default(node: Node, values: Value) -> Value:
    """What everything else becomes."""
    node.ignore("default_string", "default_float", "default_int64", "default_tensor")
    if node.has("default_tensor"):
        return node.emit.reshape(node.array("default_tensor"), ())
    if isinstance(values, Text):
        return Text.known_as(node.emit, np.asarray(node.text("default_string", "_Unused"), object))
    default: Any = node.real("default_float", -0.0) if is_float(values.element_type) else node.integer("default_int64", -1)
    return node.emit.scalar(default, values)


def looked_up(node: Node, x: Value, keys: Value, values: Value, default: Value) -> Value:
    """`values` where `x` is a key, found in the keys in order; the last of equal keys counts, NaN is one."""
    emit = node.emit
    if isinstance(keys, Text) != isinstance(x, Text):
        raise NodeProblem("dtype", "its keys are text and its input is not, or the other way round")
    known, of_keys = keys.known, values.known
    if known is None or of_keys is None or known.size != of_keys.size:
        raise ModelError(f"{node.place}: {keys.shape} keys for {values.shape} values")
    known, of_keys = known.reshape(-1).astype(numpy_dtype(x.element_type)), of_keys.reshape(-1)
    if not known.size:
        return _as(values, emit.broadcast(default, x.shape))
    known, first = np.unique(known[::-1], return_index=True)
    of_keys = of_keys[::-1][first]
    rows = emit.reshape(x, (_size(x),))
    place = emit(dl.SearchsortedOp, emit.constant(known), rows)
    place = emit(dl.MinimumOp, place, emit.scalar(len(known) - 1, place))
    found = emit(dl.GatherOp, emit.constant(known), place, axis=0)
    is_key = emit(dl.EqualOp, found, rows)
    if is_float(x.element_type):
        is_key = emit(dl.OrOp, is_key, emit(dl.AndOp, emit(dl.IsnanOp, found), emit(dl.IsnanOp, rows)))
    chosen = emit(dl.GatherOp, emit.constant(of_keys), place, axis=0)
    y = emit(dl.SelectOp, is_key, chosen, emit.cast(default, values.element_type))
    return _as(values, emit.reshape(y, x.shape))


def _size(x: Value) -> Any:
    total: Any = 1
    for size in x.shape:
        total = size * total
    return total


def _as(values: Value, found: Value) -> Value:
    return Text.of(found) if isinstance(values, Text) else found


@table("OneHotEncoder")
def one_hot_encoder(node: Node) -> Value:
    """A column for each category; a row of zeros for what is none, also where the node would have it an error."""
    node.ignore("zeros")
    x, emit = node[0], node.emit
    categories = classes_of(node, "cats_int64s", "cats_strings")
    if categories is None or isinstance(categories, Text) != isinstance(x, Text):
        raise NodeProblem("dtype", "its categories are text and its input is not, or the other way round")
    whole = emit.cast(x, _I64)
    columns = emit.reshape(whole, (*x.shape, 1))
    return emit.cast(emit(dl.EqualOp, columns, categories), _F32)


@table("ZipMap")
def zip_map(node: Node) -> Value:
    """For each row a dict from classes to numbers: made on the border of the model."""
    keys: Sequence[Any] = node.texts("classlabels_strings", ()) or node.integers("classlabels_int64s", ())
    node.ignore("classlabels_int64s")
    x = node[0]
    if x.rank == 1:
        x = node.emit.reshape(x, (1, *x.shape))
    if x.rank != 2 or (isinstance(x.shape[1], int) and x.shape[1] != len(keys)):
        raise ModelError(f"{node.place}: {len(keys)} keys for rows of shape {list(x.shape)}")
    return Maps(x, keys)

"""Converters of label operators of ai.onnx.ml: LabelEncoder, CategoryMapper, OneHotEncoder, ZipMap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float, numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.ml.scores import class_labels
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.values import MapSequence, StringTensor
from dlc.frontend.problems import NodeProblem

table = ConverterTable()
_I64, _F32 = ELEMENT_TYPES["int64"], ELEMENT_TYPES["float32"]
# Suffixes of the attributes that hold a list.
_LIST_SUFFIXES = ("int64s", "floats", "strings")


@table("LabelEncoder")
def label_encoder(node: OnnxNode) -> ImportedValue:
    """Map each key to its value, and all other elements to a default."""
    if node.has_attribute("classes_strings"):
        return _map_category(node, "classes_strings", range(len(node.strings("classes_strings", ()))))
    keys, values = _list_attribute(node, "keys"), _list_attribute(node, "values")
    if keys is None or values is None:
        raise ModelError(f"{node.description}: it has no keys or no values")
    return lookup(node, node[0], keys, values, _default(node, values))


@table("CategoryMapper")
def category_mapper(node: OnnxNode) -> ImportedValue:
    """Map strings to integers or integers to strings, depending on the dtype of the input."""
    return _map_category(node, "cats_strings", node.integers("cats_int64s", ()))


def _map_category(node: OnnxNode, string_attribute: str, integer_values: Sequence[int]) -> ImportedValue:
    """Map strings to integers or integers to strings, by two parallel lists."""
    names = StringTensor.from_strings(node.emit, np.asarray(node.strings(string_attribute, ()), object))
    integers = node.emit.constant(np.asarray(integer_values, np.int64))
    if isinstance(node[0], StringTensor):
        node.ignore_attributes("default_string")
        return lookup(node, node[0], names, integers, node.emit.constant(node.integer("default_int64", -1), np.int64))
    node.ignore_attributes("default_int64")
    default = StringTensor.from_strings(node.emit, np.asarray(node.string("default_string", "_Unused"), object))
    return lookup(node, node[0], integers, names, default)


def _list_attribute(node: OnnxNode, name: str) -> ImportedValue | None:
    """Return the attribute `name_tensor`, `name_strings`, `name_floats` or `name_int64s`, whichever is set; else None."""
    if node.has_attribute(f"{name}_tensor"):
        return node.constant_attribute(f"{name}_tensor")
    kinds = [kind for kind in _LIST_SUFFIXES if node.has_attribute(f"{name}_{kind}")]
    match kinds:
        case ["strings"]:
            return StringTensor.from_strings(node.emit, np.asarray(node.strings(f"{name}_strings", ()), object))
        case ["floats"]:
            return node.emit.constant(np.asarray(node.reals(f"{name}_floats"), np.float32))
        case ["int64s"]:
            return node.emit.constant(np.asarray(node.integers(f"{name}_int64s"), np.int64))
        case _:
            return None


def _default(node: OnnxNode, values: ImportedValue) -> ImportedValue:
    """Return the default value: the result for inputs that equal no key."""
    node.ignore_attributes("default_string", "default_float", "default_int64", "default_tensor")
    if node.has_attribute("default_tensor"):
        return node.emit.reshape(node.constant_attribute("default_tensor"), ())
    if isinstance(values, StringTensor):
        return StringTensor.from_strings(node.emit, np.asarray(node.string("default_string", "_Unused"), object))
    default: Any = node.real("default_float", -0.0) if is_float(values.element_type) else node.integer("default_int64", -1)
    return node.emit.scalar(default, values)


def lookup(
    node: OnnxNode, x: ImportedValue, keys: ImportedValue, values: ImportedValue, default: ImportedValue
) -> ImportedValue:
    """Map `x` through the table from `keys` to `values`, by binary search.

    Of duplicate keys the last counts. NaN equals NaN.
    """
    emit = node.emit
    if isinstance(keys, StringTensor) != isinstance(x, StringTensor):
        raise NodeProblem("dtype", "its keys and its input must both be strings or both be numeric")
    key_elements, value_elements = keys.constant_value, values.constant_value
    if key_elements is None or value_elements is None or key_elements.size != value_elements.size:
        raise ModelError(f"{node.description}: {keys.shape} keys for {values.shape} values")
    key_elements, value_elements = key_elements.reshape(-1).astype(numpy_dtype(x.element_type)), value_elements.reshape(-1)
    if not key_elements.size:
        return _like_strings(values, emit.broadcast(default, x.shape))
    key_elements, last_index = np.unique(key_elements[::-1], return_index=True)
    value_elements = value_elements[::-1][last_index]
    flat_x = emit.reshape(x, (_size(x),))
    index = emit(dl.SearchsortedOp, emit.constant(key_elements), flat_x)
    index = emit(dl.MinimumOp, index, emit.scalar(len(key_elements) - 1, index))
    nearest_key = emit(dl.GatherOp, emit.constant(key_elements), index, axis=0)
    is_key = emit(dl.EqualOp, nearest_key, flat_x)
    if is_float(x.element_type):
        is_key = emit(dl.OrOp, is_key, emit(dl.AndOp, emit(dl.IsnanOp, nearest_key), emit(dl.IsnanOp, flat_x)))
    nearest_value = emit(dl.GatherOp, emit.constant(value_elements), index, axis=0)
    y = emit(dl.SelectOp, is_key, nearest_value, emit.cast(default, values.element_type))
    return _like_strings(values, emit.reshape(y, x.shape))


def _size(x: ImportedValue) -> Any:
    """Return the number of elements."""
    total: Any = 1
    for size in x.shape:
        total = size * total
    return total


def _like_strings(values: ImportedValue, result: ImportedValue) -> ImportedValue:
    """Mark `result` as strings if `values` are strings."""
    return StringTensor.of(result) if isinstance(values, StringTensor) else result


@table("OneHotEncoder")
def one_hot_encoder(node: OnnxNode) -> ImportedValue:
    """One-hot encode along a new last axis. Unknown categories give zeros, even if the attribute `zeros` requests an error."""
    node.ignore_attributes("zeros")
    x, emit = node[0], node.emit
    categories = class_labels(node, "cats_int64s", "cats_strings")
    if categories is None or isinstance(categories, StringTensor) != isinstance(x, StringTensor):
        raise NodeProblem("dtype", "its categories and its input must both be strings or both be numeric")
    integers = emit.cast(x, _I64)
    columns = emit.reshape(integers, (*x.shape, 1))
    return emit.cast(emit(dl.EqualOp, columns, categories), _F32)


@table("ZipMap")
def zip_map(node: OnnxNode) -> ImportedValue:
    """Return one map {class: score} per row. The maps are built after the run, in Python."""
    keys: Sequence[Any] = node.strings("classlabels_strings", ()) or node.integers("classlabels_int64s", ())
    node.ignore_attributes("classlabels_int64s")
    x = node[0]
    if x.rank == 1:
        x = node.emit.reshape(x, (1, *x.shape))
    if x.rank != 2 or node.emit.are_different(x.shape[1], len(keys), node.description):
        raise ModelError(f"{node.description}: {len(keys)} keys for rows of shape {list(x.shape)}")
    return MapSequence(x, keys)

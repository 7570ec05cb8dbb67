"""Numbers made ready for a model: scaled, normalised, filled in, chosen, put side by side."""

from __future__ import annotations

import math

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float, numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators.ml.scores import row_of
from dlc.frontend.onnx.registry import Table
from dlc.frontend.problems import NodeProblem

table = Table()
_F32, _I64 = ELEMENT_TYPES["float32"], ELEMENT_TYPES["int64"]


@table("Scaler")
def scaler(node: Node) -> Value:
    emit, x = node.emit, node.emit.cast(node[0], _F32)
    for name, op in (("offset", dl.SubOp), ("scale", dl.MulOp)):
        if numbers := node.reals(name, ()):
            columns = x.shape[-1] if x.rank else 1
            known = columns if isinstance(columns, int) else len(numbers)
            x = emit(op, x, row_of(node, np.asarray(numbers, np.float32), known, name))
    return x


@table("Normalizer")
def normalizer(node: Node) -> Value:
    """Rows of zeros stay so."""
    emit, x, axes = node.emit, node.emit.cast(node[0], _F32), (node[0].rank - 1,)
    match node.choice("norm", "MAX", ("MAX", "L1", "L2")):
        case "MAX":
            norm = emit(dl.ReduceMaxOp, x, axes=axes, keepdims=True)
        case "L1":
            norm = emit(dl.ReduceSumOp, emit(dl.AbsOp, x), axes=axes, keepdims=True)
        case _:
            norm = emit(dl.SqrtOp, emit(dl.ReduceSumOp, emit(dl.MulOp, x, x), axes=axes, keepdims=True))
    is_zero = emit(dl.EqualOp, norm, emit.scalar(0, norm))
    return emit(dl.DivOp, x, emit(dl.SelectOp, is_zero, emit.scalar(1, norm), norm))


@table("Binarizer")
def binarizer(node: Node) -> Value:
    x = node[0]
    above = node.emit(dl.GreaterOp, x, node.emit.scalar(node.real("threshold", 0.0), x))
    return node.emit.cast(above, x.element_type)


@table("Imputer")
def imputer(node: Node) -> Value:
    """Numbers in place of one that stands for what is missing, NaN mostly, by column."""
    emit, x = node.emit, node[0]
    dtype, columns = numpy_dtype(x.element_type), x.shape[-1] if x.rank else 1
    if is_float(x.element_type):
        values, missing = node.reals("imputed_value_floats"), node.real("replaced_value_float", 0.0)
        node.ignore("replaced_value_int64", "imputed_value_int64s")
    else:
        values, missing = node.integers("imputed_value_int64s"), node.integer("replaced_value_int64", 0)
        node.ignore("replaced_value_float", "imputed_value_floats")
    is_missing = emit(dl.IsnanOp, x) if math.isnan(missing) else emit(dl.EqualOp, x, emit.scalar(missing, x))
    known = columns if isinstance(columns, int) else len(values)
    return emit(dl.SelectOp, is_missing, row_of(node, np.asarray(values, dtype), known, "imputed values"), x)


@table("ArrayFeatureExtractor")
def array_feature_extractor(node: Node) -> Value:
    """Columns of x by their numbers; a vector counts as one row."""
    emit, x, places = node.emit, node[0], node[1]
    if x.rank == 1:
        x = emit.reshape(x, (1, *x.shape))
    count = math.prod(int(size) for size in places.shape)
    return emit(dl.GatherOp, x, emit.reshape(places, (count,)), axis=x.rank - 1, checked=True)


@table("FeatureVectorizer")
def feature_vectorizer(node: Node) -> Value:
    """Inputs side by side, each cut or filled with zeros to as many columns as the node says."""
    emit, parts = node.emit, list[Value]()
    widths = node.integers("inputdimensions")
    if len(widths) != len(node.inputs):
        raise ModelError(f"{node.place}: {len(widths)} inputdimensions for {len(node.inputs)} inputs")
    for k, width in enumerate(widths):
        x = emit.cast(node[k], _F32)
        x = emit.reshape(x, (*x.shape, 1)) if x.rank == 1 else x
        if x.rank != 2 or not isinstance(columns := x.shape[1], int):
            raise NodeProblem("value", f"how many columns input {k} of shape {list(x.shape)} has must be known")
        if columns < width:
            x = emit(dl.PadOp, x, emit.scalar(0, x), low=(0, 0), high=(0, width - columns), pad_mode="constant")
        parts.append(emit.slice(x, 1, 0, width))
    return emit(dl.ConcatOp, *parts, axis=1) if len(parts) > 1 else parts[0]

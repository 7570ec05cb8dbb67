"""Feature preprocessing: scaling, normalization, imputation, selection, concatenation."""

from __future__ import annotations

import math

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, is_float, numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.ml.scores import row_constant
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.problems import NodeProblem
from dlc.ir import f64

table = ConverterTable()
_F32, _I64 = ELEMENT_TYPES["float32"], ELEMENT_TYPES["int64"]


@table("Scaler")
def scaler(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node.emit.cast(node[0], _F32)
    for name, op in (("offset", dl.SubOp), ("scale", dl.MulOp)):
        if coefficients := node.reals(name, ()):
            columns = x.shape[-1] if x.rank else 1
            x = emit(op, x, row_constant(node, np.asarray(coefficients, np.float32), columns, name))
    return x


@table("Normalizer")
def normalizer(node: OnnxNode) -> ImportedValue:
    """Normalize rows; rows of zeros are unchanged."""
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
def binarizer(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    # Integers are compared in f64, since the threshold may be a fraction.
    number = x if is_float(x.element_type) else emit.cast(x, f64)
    return emit.cast(emit(dl.GreaterOp, number, emit.scalar(node.real("threshold", 0.0), number)), x.element_type)


@table("Imputer")
def imputer(node: OnnxNode) -> ImportedValue:
    """Replace missing values, usually NaN, by a constant per column."""
    emit, x = node.emit, node[0]
    dtype, columns = numpy_dtype(x.element_type), x.shape[-1] if x.rank else 1
    if is_float(x.element_type):
        values, missing = node.reals("imputed_value_floats"), node.real("replaced_value_float", 0.0)
        node.ignore_attributes("replaced_value_int64", "imputed_value_int64s")
    else:
        values, missing = node.integers("imputed_value_int64s"), node.integer("replaced_value_int64", 0)
        node.ignore_attributes("replaced_value_float", "imputed_value_floats")
    is_missing = emit(dl.IsnanOp, x) if math.isnan(missing) else emit(dl.EqualOp, x, emit.scalar(missing, x))
    return emit(dl.SelectOp, is_missing, row_constant(node, np.asarray(values, dtype), columns, "imputed values"), x)


@table("ArrayFeatureExtractor")
def array_feature_extractor(node: OnnxNode) -> ImportedValue:
    """Select columns of x by index; a vector counts as one row."""
    emit, x, indices = node.emit, node[0], node[1]
    if x.rank == 1:
        x = emit.reshape(x, (1, *x.shape))
    count = math.prod(int(size) for size in indices.shape)
    return emit(dl.GatherOp, x, emit.reshape(indices, (count,)), axis=x.rank - 1, checked=True)


@table("FeatureVectorizer")
def feature_vectorizer(node: OnnxNode) -> ImportedValue:
    """Concatenate inputs, each trimmed or zero-padded to its number of columns in `inputdimensions`."""
    emit, columns_of_inputs = node.emit, list[ImportedValue]()
    widths = node.integers("inputdimensions")
    if len(widths) != len(node.inputs):
        raise ModelError(f"{node.description}: {len(widths)} inputdimensions for {len(node.inputs)} inputs")
    for k, width in enumerate(widths):
        x = emit.cast(node[k], _F32)
        x = emit.reshape(x, (*x.shape, 1)) if x.rank == 1 else x
        if x.rank != 2 or not isinstance(columns := x.shape[1], int):
            raise NodeProblem("value", f"the number of columns of input {k} of shape {list(x.shape)} must be static")
        columns_of_inputs.append(emit.pad(x, (0, 0), (0, width - columns)))
    return emit(dl.ConcatOp, *columns_of_inputs, axis=1) if len(columns_of_inputs) > 1 else columns_of_inputs[0]

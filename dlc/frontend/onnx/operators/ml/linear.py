"""Linear models: a product with a matrix of coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.ml.scores import (
    TRANSFORMS,
    ScoreCase,
    apply_post_transform,
    class_labels,
    labels_and_scores,
    row_constant,
)
from dlc.frontend.onnx.registry import ConverterTable

table = ConverterTable()
_F32 = ELEMENT_TYPES["float32"]


def feature_rows(node: OnnxNode) -> ImportedValue:
    """Return the input as rows of f32, the precision of these models."""
    x = node[0]
    if x.rank == 1:
        x = node.emit.reshape(x, (1, *x.shape))
    if x.rank != 2:
        raise ModelError(f"{node.description}: expected features [n, columns], got shape {list(x.shape)}")
    return node.emit.cast(x, _F32)


def affine_product(node: OnnxNode, x: ImportedValue, matrix: Array, offset: Array, name: str = "coefficients") -> ImportedValue:
    """Return x · matrixᵀ + offset, for a matrix with one row per output."""
    emit = node.emit
    weights = emit.constant(np.ascontiguousarray(matrix.T, np.float32), name=f"{node.proto.output[0]}.{name}")
    y = emit(dl.MatmulOp, x, weights)
    return emit(dl.AddOp, y, row_constant(node, offset.astype(np.float32), len(matrix), "intercepts")) if offset.size else y


def _coefficients(node: OnnxNode, rows: int) -> Array:
    coefficients = np.asarray(node.reals("coefficients"), np.float32)
    if rows < 1 or coefficients.size % rows:
        raise ModelError(f"{node.description}: {coefficients.size} coefficients for {rows} outputs")
    return coefficients.reshape(rows, -1)


@table("LinearRegressor")
def linear_regressor(node: OnnxNode) -> ImportedValue:
    offset = np.asarray(node.reals("intercepts", ()), np.float32)
    y = affine_product(node, feature_rows(node), _coefficients(node, node.integer("targets", 1)), offset)
    return apply_post_transform(node, y, node.choice("post_transform", "NONE", TRANSFORMS))


@table("LinearClassifier")
def linear_classifier(node: OnnxNode) -> Sequence[ImportedValue]:
    node.ignore_attributes("multi_class")
    classes, offset = class_labels(node, "classlabels_ints", "classlabels_strings"), np.asarray(node.reals("intercepts", ()))
    x, transform = feature_rows(node), node.choice("post_transform", "NONE", TRANSFORMS)
    rows = offset.size or np.asarray(node.reals("coefficients")).size // max(int(x.shape[1]), 1)
    scores = affine_product(node, x, _coefficients(node, rows), offset)
    if rows > 1:
        return labels_and_scores(node, scores, classes, ScoreCase.PER_CLASS, transform)
    # The label depends on the sign, but the scores are treated as probabilities.
    label, _ = labels_and_scores(node, scores, classes, ScoreCase.MARGIN, "NONE")
    has_two_classes = classes is not None and classes.shape[0] == 2
    return label, labels_and_scores(node, scores, classes, ScoreCase.PROBABILITY, transform)[1] if has_two_classes else scores

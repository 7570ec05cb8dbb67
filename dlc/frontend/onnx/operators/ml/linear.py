"""Linear models: a product with a matrix of coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators.ml.scores import TRANSFORMS, Case, classes_of, decided, row_of, transformed
from dlc.frontend.onnx.registry import Table

table = Table()
_F32 = ELEMENT_TYPES["float32"]


def features_of(node: Node) -> Value:
    """The input as rows of f32, in which these models compute."""
    x = node[0]
    if x.rank == 1:
        x = node.emit.reshape(x, (1, *x.shape))
    if x.rank != 2:
        raise ModelError(f"{node.place}: rows of features have two axes, got {list(x.shape)}")
    return node.emit.cast(x, _F32)


def product(node: Node, x: Value, matrix: Array, offset: Array, name: str = "coefficients") -> Value:
    """x · matrixᵀ + offset, for a matrix with a row for each output."""
    emit = node.emit
    weights = emit.constant(np.ascontiguousarray(matrix.T, np.float32), name=f"{node.proto.output[0]}.{name}")
    y = emit(dl.MatmulOp, x, weights)
    return emit(dl.AddOp, y, row_of(node, offset.astype(np.float32), len(matrix), "intercepts")) if offset.size else y


def _coefficients(node: Node, rows: int) -> Array:
    found = np.asarray(node.reals("coefficients"), np.float32)
    if rows < 1 or found.size % rows:
        raise ModelError(f"{node.place}: {found.size} coefficients for {rows} outputs")
    return found.reshape(rows, -1)


@table("LinearRegressor")
def linear_regressor(node: Node) -> Value:
    offset = np.asarray(node.reals("intercepts", ()), np.float32)
    y = product(node, features_of(node), _coefficients(node, node.integer("targets", 1)), offset)
    return transformed(node, y, node.choice("post_transform", "NONE", TRANSFORMS))


@table("LinearClassifier")
def linear_classifier(node: Node) -> Sequence[Value]:
    node.ignore("multi_class")
    classes, offset = classes_of(node, "classlabels_ints", "classlabels_strings"), np.asarray(node.reals("intercepts", ()))
    x, transform = features_of(node), node.choice("post_transform", "NONE", TRANSFORMS)
    rows = offset.size or np.asarray(node.reals("coefficients")).size // max(int(x.shape[1]), 1)
    scores = product(node, x, _coefficients(node, rows), offset)
    if rows > 1:
        return decided(node, scores, classes, Case.OF_CLASS, transform)
    # The label hangs on the sign, the scores are shares.
    label, _ = decided(node, scores, classes, Case.SIGN, "NONE")
    both = classes is not None and classes.shape[0] == 2
    return label, decided(node, scores, classes, Case.SHARE, transform)[1] if both else scores

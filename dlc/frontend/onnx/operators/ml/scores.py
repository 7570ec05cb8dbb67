"""Postprocessing of classifier scores: labels, and the post_transform."""

from __future__ import annotations

import math
from enum import Enum, auto

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.values import StringTensor
from dlc.frontend.problems import NodeProblem
from dlc.shapes.dims import Size

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_I64 = ELEMENT_TYPES["int64"]


class ScoreCase(Enum):
    """The meaning of a score column.

    PER_CLASS: the score of its class; PROBABILITY: that of the second of two classes; MARGIN: selects the second class if
    positive.
    """

    PER_CLASS = auto()
    PROBABILITY = auto()
    MARGIN = auto()


def row_constant(node: OnnxNode, values: Array, count: Size, name: str) -> ImportedValue:
    """Return a constant row for `count` columns, or one value for all of them."""
    if values.size != 1 and node.emit.are_different(values.size, count, node.description):
        raise ModelError(f"{node.description}: {name} has {values.size} elements for {count} columns")
    return node.emit.constant(values.reshape(-1), name=f"{node.proto.output[0]}.{name}")


def class_labels(node: OnnxNode, integer_attribute: str, string_attribute: str) -> ImportedValue | None:
    """Return the class labels of a node; None if it has none."""
    if labels := node.strings(string_attribute, ()):
        node.ignore_attributes(integer_attribute)
        return StringTensor.from_strings(node.emit, np.asarray(labels, object))
    values = node.integers(integer_attribute, ())
    return node.emit.constant(np.asarray(values, np.int64)) if values else None


def labels_at(node: OnnxNode, index: ImportedValue, classes: ImportedValue | None) -> ImportedValue:
    """Return the label at each class index; the index itself if there are no labels."""
    if classes is None:
        return node.emit.cast(index, _I64)
    labels = node.emit(dl.GatherOp, classes, node.emit.cast(index, _I64), axis=0)
    return StringTensor.of(labels) if isinstance(classes, StringTensor) else labels


def best_class(node: OnnxNode, scores: ImportedValue) -> ImportedValue:
    """Return the index of the largest score of each row, the first one for ties."""
    return node.emit(dl.ArgmaxOp, scores, axis=1)


def labels_and_scores(
    node: OnnxNode, scores: ImportedValue, classes: ImportedValue | None, case: ScoreCase, transform: str
) -> tuple[ImportedValue, ImportedValue]:
    """Return the label and the scores of each row; a single column for two classes is expanded to two."""
    emit = node.emit
    if case is ScoreCase.PER_CLASS:
        return labels_at(node, best_class(node, scores), classes), apply_post_transform(node, scores, transform)
    positive = emit(dl.GreaterOp, scores, emit.scalar(0.5 if case is ScoreCase.PROBABILITY else 0, scores))
    label = emit.cast(emit.reshape(positive, scores.shape[:1]), _I64)
    if classes is None or classes.shape[0] == 1:
        return label, scores
    return labels_at(node, label, classes), two_class_scores(node, scores, case, transform)


def two_class_scores(node: OnnxNode, score: ImportedValue, case: ScoreCase, transform: str) -> ImportedValue:
    """Return the scores of two classes from the score of the second one."""
    emit = node.emit
    if transform == "PROBIT":
        raise NodeProblem("attribute", "post_transform = 'PROBIT' of one score for two classes is not supported")
    negative = emit(dl.NegOp, score)
    if transform == "LOGISTIC":
        return emit(dl.SigmoidOp, emit(dl.ConcatOp, negative, score, axis=1))
    if case is ScoreCase.PROBABILITY:
        negative = emit(dl.AddOp, negative, emit.scalar(1, score))
    # Like ONNX Runtime, apply no softmax to them.
    return emit(dl.ConcatOp, negative, score, axis=1)


def apply_post_transform(node: OnnxNode, scores: ImportedValue, transform: str) -> ImportedValue:
    """Apply a post_transform to scores [n, columns]."""
    emit = node.emit
    match transform:
        case "SOFTMAX":
            return emit(dl.SoftmaxOp, scores, axis=1)
        case "LOGISTIC":
            return emit(dl.SigmoidOp, scores)
        case "SOFTMAX_ZERO":
            return _softmax_zero(node, scores)
        case "PROBIT":
            return _probit(node, scores)
        case _:
            return scores


def _softmax_zero(node: OnnxNode, scores: ImportedValue) -> ImportedValue:
    """Apply a softmax that maps scores of 0 to 0."""
    emit = node.emit
    largest = emit(dl.ReduceMaxOp, scores, axes=(1,), keepdims=True)
    powers = emit(dl.ExpOp, emit(dl.SubOp, scores, largest))
    is_zero = emit(dl.LessOp, emit(dl.AbsOp, scores), emit.scalar(1e-7, scores))
    terms = emit(dl.SelectOp, is_zero, emit(dl.MulOp, scores, emit(dl.ExpOp, emit(dl.NegOp, largest))), powers)
    return emit(dl.DivOp, terms, emit(dl.ReduceSumOp, terms, axes=(1,), keepdims=True))


def _probit(node: OnnxNode, scores: ImportedValue) -> ImportedValue:
    """√2 erf⁻¹(2p - 1), in the approximation that other implementations use (Winitzki, 2008)."""
    emit = node.emit

    def scaled(x: ImportedValue, factor: float, offset: float = 0.0) -> ImportedValue:
        return emit(dl.AddOp, emit(dl.MulOp, x, emit.scalar(factor, x)), emit.scalar(offset, x))

    z = scaled(scores, 2, -1)
    log = emit(dl.LogOp, scaled(emit(dl.MulOp, z, z), -1, 1))
    v = scaled(log, 0.5, 2 / (math.pi * 0.147))
    root = emit(dl.SubOp, emit(dl.SqrtOp, emit(dl.SubOp, emit(dl.MulOp, v, v), scaled(log, 1 / 0.147))), v)
    return scaled(emit(dl.MulOp, emit(dl.SignOp, z), emit(dl.SqrtOp, root)), 1.41421356)

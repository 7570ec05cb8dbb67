"""What classifiers make of scores: the label, and scores that are transformed."""

from __future__ import annotations

import math
from enum import Enum, auto

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.values import Text
from dlc.frontend.problems import NodeProblem

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_I64 = ELEMENT_TYPES["int64"]


class Case(Enum):
    """What a column of scores is: a class's; the second of two classes' share of 1; or it speaks for that class above 0."""

    OF_CLASS = auto()
    SHARE = auto()
    SIGN = auto()


def row_of(node: Node, numbers: Array, count: int, name: str) -> Value:
    """Numbers as a row that one for each of so many columns is added by."""
    if numbers.size not in (1, count):
        raise ModelError(f"{node.place}: {name} has {numbers.size} numbers for {count} columns")
    return node.emit.constant(numbers.reshape(-1), name=f"{node.proto.output[0]}.{name}")


def classes_of(node: Node, integers: str, texts: str) -> Value | None:
    """The labels that a node names, none if it names none."""
    if labels := node.texts(texts, ()):
        node.ignore(integers)
        return Text.known_as(node.emit, np.asarray(labels, object))
    numbers = node.integers(integers, ())
    return node.emit.constant(np.asarray(numbers, np.int64)) if numbers else None


def labelled(node: Node, place: Value, classes: Value | None) -> Value:
    """The label at each place among the classes; the place itself if they have none."""
    if classes is None:
        return node.emit.cast(place, _I64)
    found = node.emit(dl.GatherOp, classes, node.emit.cast(place, _I64), axis=0)
    return Text.of(found) if isinstance(classes, Text) else found


def best(node: Node, scores: Value) -> Value:
    """The column of the largest score of each row, the first of equal ones."""
    return node.emit(dl.ArgmaxOp, scores, axis=1)


def decided(node: Node, scores: Value, classes: Value | None, case: Case, transform: str) -> tuple[Value, Value]:
    """The label of each row, and its scores: of one column that tells two classes apart, both."""
    emit = node.emit
    if case is Case.OF_CLASS:
        return labelled(node, best(node, scores), classes), transformed(node, scores, transform)
    positive = emit(dl.GreaterOp, scores, emit.scalar(0.5 if case is Case.SHARE else 0, scores))
    label = emit.cast(emit.reshape(positive, scores.shape[:1]), _I64)
    if classes is None or classes.shape[0] == 1:
        return label, scores
    return labelled(node, label, classes), of_both(node, scores, case, transform)


def of_both(node: Node, score: Value, case: Case, transform: str) -> Value:
    """The scores of two classes by that of the second."""
    emit = node.emit
    if transform == "PROBIT":
        raise NodeProblem("attribute", "post_transform = 'PROBIT' of one score for two classes is not supported")
    against = emit(dl.NegOp, score)
    if transform == "LOGISTIC":
        return emit(dl.SigmoidOp, emit(dl.ConcatOp, against, score, axis=1))
    if case is Case.SHARE:
        against = emit(dl.AddOp, against, emit.scalar(1, score))
    # ONNX Runtime takes a softmax of them for done.
    return emit(dl.ConcatOp, against, score, axis=1)


def transformed(node: Node, scores: Value, transform: str) -> Value:
    """Scores [n, columns] after a post_transform."""
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


def _softmax_zero(node: Node, scores: Value) -> Value:
    """A softmax in which what is zero stays so."""
    emit = node.emit
    most = emit(dl.ReduceMaxOp, scores, axes=(1,), keepdims=True)
    powers = emit(dl.ExpOp, emit(dl.SubOp, scores, most))
    is_zero = emit(dl.LessOp, emit(dl.AbsOp, scores), emit.scalar(1e-7, scores))
    kept = emit(dl.SelectOp, is_zero, emit(dl.MulOp, scores, emit(dl.ExpOp, emit(dl.NegOp, most))), powers)
    return emit(dl.DivOp, kept, emit(dl.ReduceSumOp, kept, axes=(1,), keepdims=True))


def _probit(node: Node, scores: Value) -> Value:
    """√2 erf⁻¹(2p - 1), as all who implement the operator approximate it (Winitzki, 2008)."""
    emit = node.emit

    def scaled(x: Value, factor: float, offset: float = 0.0) -> Value:
        return emit(dl.AddOp, emit(dl.MulOp, x, emit.scalar(factor, x)), emit.scalar(offset, x))

    z = scaled(scores, 2, -1)
    log = emit(dl.LogOp, scaled(emit(dl.MulOp, z, z), -1, 1))
    v = scaled(log, 0.5, 2 / (math.pi * 0.147))
    inside = emit(dl.SubOp, emit(dl.SqrtOp, emit(dl.SubOp, emit(dl.MulOp, v, v), scaled(log, 1 / 0.147))), v)
    return scaled(emit(dl.MulOp, emit(dl.SignOp, z), emit(dl.SqrtOp, inside)), 1.41421356)

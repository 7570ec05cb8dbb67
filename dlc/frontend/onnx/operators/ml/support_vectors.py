"""Support vectors: how much each row is like each of them, and products with what they weigh.

K[n, v] = kernel(x[n], vector[v])       scores = K · weights + rho      one score for each pair of classes
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.errors import ModelError
from dlc.frontend.emit import Emitter, Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators.ml.linear import features_of, product
from dlc.frontend.onnx.operators.ml.scores import TRANSFORMS, Case, best, classes_of, labelled, of_both, transformed
from dlc.frontend.onnx.registry import Table
from dlc.frontend.problems import NodeProblem

table = Table()
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_F32 = ELEMENT_TYPES["float32"]
# Steps of the probabilities of pairs towards those of classes, and when they are near enough (Wu, Lin and Weng, 2004).
_MOST_STEPS, _NEAR = 100, 0.005


def _alike(node: Node, x: Value, vectors: Array) -> Value:
    """The kernel of each row and each vector."""
    emit, kernel = node.emit, node.choice("kernel_type", "LINEAR", _KERNELS)
    gamma, offset, degree = (*node.reals("kernel_params", (0.0, 0.0, 0.0)), 0.0, 0.0, 0.0)[:3]
    dots = product(node, x, vectors, np.zeros(0), "vectors")
    if kernel == "LINEAR":
        return dots
    if kernel == "RBF":
        # |x - v|² = x·x - 2 x·v + v·v
        own = emit(dl.ReduceSumOp, emit(dl.MulOp, x, x), axes=(1,), keepdims=True)
        theirs = emit.constant(np.square(vectors, dtype=np.float32).sum(1))
        apart = emit(dl.AddOp, emit(dl.SubOp, own, emit(dl.MulOp, dots, emit.scalar(2, dots))), theirs)
        return emit(dl.ExpOp, emit(dl.MulOp, apart, emit.scalar(-gamma, apart)))
    inner = emit(dl.AddOp, emit(dl.MulOp, dots, emit.scalar(gamma, dots)), emit.scalar(offset, dots))
    return emit(dl.TanhOp, inner) if kernel == "SIGMOID" else emit(dl.PowOp, inner, emit.scalar(degree, inner))


def _vectors(node: Node, count: int) -> Array:
    found = np.asarray(node.reals("support_vectors"), np.float32)
    if found.size % count:
        raise ModelError(f"{node.place}: {found.size} numbers for {count} support vectors")
    return found.reshape(count, -1)


def _reals(node: Node, name: str) -> Array:
    return np.asarray(node.reals(name, ()), np.float32)


@table("SVMRegressor")
def svm_regressor(node: Node) -> Value:
    x, count, rho = features_of(node), node.integer("n_supports", 0), _reals(node, "rho")[:1]
    coefficients = _reals(node, "coefficients").reshape(1, -1)
    if count:
        x = _alike(node, x, _vectors(node, count))
    else:
        node.ignore("kernel_type", "kernel_params", "support_vectors")
    y = product(node, x, coefficients, rho)
    if node.flag("one_class"):
        one = node.emit.scalar(1, y)
        return node.emit(dl.SelectOp, node.emit(dl.GreaterOp, y, node.emit.scalar(0, y)), one, node.emit(dl.NegOp, one))
    return transformed(node, y, node.choice("post_transform", "NONE", TRANSFORMS))


@table("SVMClassifier")
def svm_classifier(node: Node) -> Sequence[Value]:
    x, classes = features_of(node), classes_of(node, "classlabels_ints", "classlabels_strings")
    transform, of_class = node.choice("post_transform", "NONE", TRANSFORMS), node.integers("vectors_per_class", ())
    rho, coefficients = _reals(node, "rho"), _reals(node, "coefficients")
    count = 1 if classes is None else int(classes.shape[0])
    if not sum(of_class):
        node.ignore("kernel_type", "kernel_params", "support_vectors", "prob_a", "prob_b")
        scores = product(node, x, coefficients.reshape(count, -1), np.repeat(rho[:1], count))
        return labelled(node, best(node, scores), classes), transformed(node, scores, transform)
    pairs = list(combinations(range(count), 2))
    if len(of_class) != count or len(rho) != len(pairs) or coefficients.size != (count - 1) * sum(of_class):
        raise ModelError(
            f"{node.place}: {coefficients.size} coefficients of {sum(of_class)} vectors and {len(rho)} numbers rho do not fit "
            f"{count} classes"
        )
    weights = _of_pairs(coefficients.reshape(count - 1, -1), of_class, pairs)
    scores = product(node, _alike(node, x, _vectors(node, sum(of_class))), weights, rho)
    label = labelled(node, best(node, _votes(node.emit, scores, count, pairs)), classes)
    if node.has("prob_a") and node.reals("prob_a"):
        scores = _probabilities(node, scores, count, pairs)
    elif len(pairs) == 1:
        if transform not in ("NONE", "LOGISTIC"):
            raise NodeProblem("attribute", f"post_transform = '{transform}' of one score for two classes is not supported")
        return label, of_both(node, scores, Case.SIGN, transform)
    return label, transformed(node, scores, transform)


def _of_pairs(coefficients: Array, of_class: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Array:
    """What each vector weighs for each pair of classes: row j - 1 has the weights of vectors of i in the pair (i, j)."""
    ends = np.cumsum([0, *of_class])
    weights = np.zeros((len(pairs), ends[-1]), np.float32)
    for pair, (i, j) in enumerate(pairs):
        of_i, of_j = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        weights[pair, of_i], weights[pair, of_j] = coefficients[j - 1, of_i], coefficients[i, of_j]
    return weights


def _votes(emit: Emitter, scores: Value, count: int, pairs: Sequence[tuple[int, int]]) -> Value:
    """How many pairs each class wins."""
    first, second = (np.zeros((len(pairs), count), np.float32) for _ in range(2))
    for pair, (i, j) in enumerate(pairs):
        first[pair, i] = second[pair, j] = 1
    wins = emit.cast(emit(dl.GreaterOp, scores, emit.scalar(0, scores)), _F32)
    # wins · first + (1 - wins) · second
    won = emit(dl.MatmulOp, wins, emit.constant(first - second))
    return emit(dl.AddOp, won, emit.constant(second.sum(0)))


def _probabilities(node: Node, scores: Value, count: int, pairs: Sequence[tuple[int, int]]) -> Value:
    """Probabilities of classes that agree best with those of pairs, which are sigmoids of scores."""
    emit, a, b = node.emit, _reals(node, "prob_a"), _reals(node, "prob_b")
    if a.shape != b.shape or len(a) != len(pairs):
        raise ModelError(f"{node.place}: prob_a and prob_b have {len(a)} and {len(b)} numbers for {len(pairs)} pairs")
    # 1 - sigmoid(s·a + b)
    argument = emit(dl.NegOp, emit(dl.AddOp, emit(dl.MulOp, scores, emit.constant(a)), emit.constant(b)))
    of_pair = emit(dl.MaximumOp, emit(dl.SigmoidOp, argument), emit.scalar(1e-7, scores))
    of_pair = emit(dl.MinimumOp, of_pair, emit.scalar(1 - 1e-7, scores))
    columns = [emit.slice(of_pair, 1, k, k + 1) for k in range(len(pairs))]
    one = emit.scalar(1, scores)
    r = {pair: column for pair, column in zip(pairs, columns, strict=True)}
    r.update({(j, i): emit(dl.SubOp, one, column) for (i, j), column in list(r.items())})
    # Q[t, t] = Σ r[j, t]², Q[t, j] = -r[j, t]·r[t, j]
    q = [[_entry(emit, r, t, j, count) for j in range(count)] for t in range(count)]
    matrix = emit(dl.ConcatOp, *(column for row in q for column in row), axis=1)
    n = scores.shape[0]
    start = emit.full(1 / count, (n, count), scores)
    going = emit.full(1, (n, 1), scores)

    def step(inner: Emitter, states: Sequence[Value], _: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        return _coupled(inner, matrix, *states, count=count), []

    (p, _), _ = emit.scan([start, going], [], max(_MOST_STEPS, count), step)
    return p


def _entry(emit: Emitter, r: dict[tuple[int, int], Value], t: int, j: int, count: int) -> Value:
    if t != j:
        return emit(dl.NegOp, emit(dl.MulOp, r[j, t], r[t, j]))
    squares = [emit(dl.MulOp, r[k, t], r[k, t]) for k in range(count) if k != t]
    total = squares[0]
    for square in squares[1:]:
        total = emit(dl.AddOp, total, square)
    return total


def _coupled(emit: Emitter, matrix: Value, p: Value, going: Value, *, count: int) -> Sequence[Value]:
    """One step for all rows; those that are near enough stay as they are."""

    def rows(k: int) -> Value:
        return emit.slice(matrix, 1, k * count, (k + 1) * count)

    def column(x: Value, k: int) -> Value:
        return emit.slice(x, 1, k, k + 1)

    def total(x: Value, y: Value) -> Value:
        return emit(dl.ReduceSumOp, emit(dl.MulOp, x, y), axes=(1,), keepdims=True)

    before = p
    qp = emit(dl.ConcatOp, *(total(rows(k), p) for k in range(count)), axis=1)
    pqp = total(p, qp)
    error = emit(dl.ReduceMaxOp, emit(dl.AbsOp, emit(dl.SubOp, qp, pqp)), axes=(1,), keepdims=True)
    far = emit(dl.GreaterEqualOp, error, emit.scalar(_NEAR / count, error))
    going = emit(dl.MulOp, going, emit.cast(far, going.element_type))
    one = emit.scalar(1, p)
    for t in range(count):
        qtt = column(rows(t), t)
        change = emit(dl.DivOp, emit(dl.SubOp, pqp, column(qp, t)), qtt)
        whole = emit(dl.AddOp, change, one)
        twice = emit(dl.AddOp, column(qp, t), column(qp, t))
        grown = emit(dl.AddOp, pqp, emit(dl.MulOp, change, emit(dl.AddOp, emit(dl.MulOp, change, qtt), twice)))
        pqp = emit(dl.DivOp, grown, emit(dl.MulOp, whole, whole))
        unit = np.zeros((1, count), np.float32)
        unit[0, t] = 1
        p = emit(dl.DivOp, emit(dl.AddOp, p, emit(dl.MulOp, change, emit.constant(unit))), whole)
        qp = emit(dl.DivOp, emit(dl.AddOp, qp, emit(dl.MulOp, change, rows(t))), whole)
    moves = emit(dl.GreaterOp, going, emit.scalar(0, going))
    return emit(dl.SelectOp, moves, p, before), going

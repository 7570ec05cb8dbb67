"""Support vector machines: kernels between rows and support vectors, and products with their weights.

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
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.ml.linear import affine_product, feature_rows
from dlc.frontend.onnx.operators.ml.scores import (
    TRANSFORMS,
    ScoreCase,
    apply_post_transform,
    best_class,
    class_labels,
    labels_at,
    two_class_scores,
)
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.problems import NodeProblem

table = ConverterTable()
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_F32 = ELEMENT_TYPES["float32"]
# Iterations and tolerance of pairwise coupling of probabilities (Wu, Lin and Weng, 2004).
_MAX_COUPLING_STEPS, _COUPLING_TOLERANCE = 100, 0.005


def _kernel_matrix(node: OnnxNode, x: ImportedValue, vectors: Array) -> ImportedValue:
    """Return the kernel of each row with each support vector."""
    emit, kernel = node.emit, node.choice("kernel_type", "LINEAR", _KERNELS)
    gamma, offset, degree = (*node.reals("kernel_params", (0.0, 0.0, 0.0)), 0.0, 0.0, 0.0)[:3]
    dots = affine_product(node, x, vectors, np.zeros(0), "vectors")
    if kernel == "LINEAR":
        return dots
    if kernel == "RBF":
        # |x - v|² = x·x - 2 x·v + v·v
        row_norms = emit(dl.ReduceSumOp, emit(dl.MulOp, x, x), axes=(1,), keepdims=True)
        vector_norms = emit.constant(np.square(vectors, dtype=np.float32).sum(1))
        squared_distance = emit(dl.AddOp, emit(dl.SubOp, row_norms, emit(dl.MulOp, dots, emit.scalar(2, dots))), vector_norms)
        return emit(dl.ExpOp, emit(dl.MulOp, squared_distance, emit.scalar(-gamma, squared_distance)))
    inner = emit(dl.AddOp, emit(dl.MulOp, dots, emit.scalar(gamma, dots)), emit.scalar(offset, dots))
    return emit(dl.TanhOp, inner) if kernel == "SIGMOID" else emit(dl.PowOp, inner, emit.scalar(degree, inner))


def _vectors(node: OnnxNode, count: int) -> Array:
    vectors = np.asarray(node.reals("support_vectors"), np.float32)
    if vectors.size % count:
        raise ModelError(f"{node.description}: {vectors.size} elements for {count} support vectors")
    return vectors.reshape(count, -1)


def _reals(node: OnnxNode, name: str) -> Array:
    return np.asarray(node.reals(name, ()), np.float32)


@table("SVMRegressor")
def svm_regressor(node: OnnxNode) -> ImportedValue:
    x, count, rho = feature_rows(node), node.integer("n_supports", 0), _reals(node, "rho")[:1]
    coefficients = _reals(node, "coefficients").reshape(1, -1)
    if count:
        x = _kernel_matrix(node, x, _vectors(node, count))
    else:
        node.ignore_attributes("kernel_type", "kernel_params", "support_vectors")
    y = affine_product(node, x, coefficients, rho)
    if node.flag("one_class"):
        one = node.emit.scalar(1, y)
        return node.emit(dl.SelectOp, node.emit(dl.GreaterOp, y, node.emit.scalar(0, y)), one, node.emit(dl.NegOp, one))
    return apply_post_transform(node, y, node.choice("post_transform", "NONE", TRANSFORMS))


@table("SVMClassifier")
def svm_classifier(node: OnnxNode) -> Sequence[ImportedValue]:
    x, classes = feature_rows(node), class_labels(node, "classlabels_ints", "classlabels_strings")
    transform, vectors_per_class = node.choice("post_transform", "NONE", TRANSFORMS), node.integers("vectors_per_class", ())
    rho, coefficients = _reals(node, "rho"), _reals(node, "coefficients")
    count = 1 if classes is None else int(classes.shape[0])
    if not sum(vectors_per_class):
        node.ignore_attributes("kernel_type", "kernel_params", "support_vectors", "prob_a", "prob_b")
        scores = affine_product(node, x, coefficients.reshape(count, -1), np.repeat(rho[:1], count))
        return labels_at(node, best_class(node, scores), classes), apply_post_transform(node, scores, transform)
    pairs = list(combinations(range(count), 2))
    if len(vectors_per_class) != count or len(rho) != len(pairs) or coefficients.size != (count - 1) * sum(vectors_per_class):
        raise ModelError(
            f"{node.description}: {coefficients.size} coefficients of {sum(vectors_per_class)} vectors and "
            f"{len(rho)} elements of rho do not match {count} classes"
        )
    weights = _pair_weights(coefficients.reshape(count - 1, -1), vectors_per_class, pairs)
    scores = affine_product(node, _kernel_matrix(node, x, _vectors(node, sum(vectors_per_class))), weights, rho)
    label = labels_at(node, best_class(node, _votes(node.emit, scores, count, pairs)), classes)
    if node.has_attribute("prob_a") and node.reals("prob_a"):
        scores = _probabilities(node, scores, count, pairs)
    elif len(pairs) == 1:
        if transform not in ("NONE", "LOGISTIC"):
            raise NodeProblem("attribute", f"post_transform = '{transform}' of one score for two classes is not supported")
        return label, two_class_scores(node, scores, ScoreCase.MARGIN, transform)
    return label, apply_post_transform(node, scores, transform)


def _pair_weights(coefficients: Array, vectors_per_class: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Array:
    """Return the weight of each vector for each pair (i, j): row j - 1 of `coefficients` holds those of class i."""
    class_bounds = np.cumsum([0, *vectors_per_class])
    weights = np.zeros((len(pairs), class_bounds[-1]), np.float32)
    for pair, (i, j) in enumerate(pairs):
        vectors_i, vectors_j = slice(class_bounds[i], class_bounds[i + 1]), slice(class_bounds[j], class_bounds[j + 1])
        weights[pair, vectors_i], weights[pair, vectors_j] = coefficients[j - 1, vectors_i], coefficients[i, vectors_j]
    return weights


def _votes(emit: Emitter, scores: ImportedValue, count: int, pairs: Sequence[tuple[int, int]]) -> ImportedValue:
    """Count the pairs that each class wins."""
    first, second = (np.zeros((len(pairs), count), np.float32) for _ in range(2))
    for pair, (i, j) in enumerate(pairs):
        first[pair, i] = second[pair, j] = 1
    wins = emit.cast(emit(dl.GreaterOp, scores, emit.scalar(0, scores)), _F32)
    # wins · first + (1 - wins) · second
    won = emit(dl.MatmulOp, wins, emit.constant(first - second))
    return emit(dl.AddOp, won, emit.constant(second.sum(0)))


def _probabilities(node: OnnxNode, scores: ImportedValue, count: int, pairs: Sequence[tuple[int, int]]) -> ImportedValue:
    """Couple the pairwise probabilities, which are sigmoids of scores, into class probabilities."""
    emit, a, b = node.emit, _reals(node, "prob_a"), _reals(node, "prob_b")
    if a.shape != b.shape or len(a) != len(pairs):
        raise ModelError(f"{node.description}: prob_a and prob_b have {len(a)} and {len(b)} elements for {len(pairs)} pairs")
    # 1 - sigmoid(s·a + b)
    argument = emit(dl.NegOp, emit(dl.AddOp, emit(dl.MulOp, scores, emit.constant(a)), emit.constant(b)))
    pairwise = emit(dl.MaximumOp, emit(dl.SigmoidOp, argument), emit.scalar(1e-7, scores))
    pairwise = emit(dl.MinimumOp, pairwise, emit.scalar(1 - 1e-7, scores))
    columns = [emit.slice(pairwise, 1, k, k + 1) for k in range(len(pairs))]
    one = emit.scalar(1, scores)
    r = {pair: column for pair, column in zip(pairs, columns, strict=True)}
    r.update({(j, i): emit(dl.SubOp, one, column) for (i, j), column in list(r.items())})
    # Q[t, t] = Σ r[j, t]², Q[t, j] = -r[j, t]·r[t, j]
    q = [[_coupling_entry(emit, r, t, j, count) for j in range(count)] for t in range(count)]
    matrix = emit(dl.ConcatOp, *(column for row in q for column in row), axis=1)
    n = scores.shape[0]
    start = emit.full(1 / count, (n, count), scores)
    active = emit.full(1, (n, 1), scores)

    def step(
        inner: Emitter, states: Sequence[ImportedValue], _: Sequence[ImportedValue]
    ) -> tuple[Sequence[ImportedValue], Sequence[ImportedValue]]:
        return _coupling_step(inner, matrix, *states, count=count), []

    (p, _), _ = emit.scan([start, active], [], max(_MAX_COUPLING_STEPS, count), step)
    return p


def _coupling_entry(emit: Emitter, r: dict[tuple[int, int], ImportedValue], t: int, j: int, count: int) -> ImportedValue:
    if t != j:
        return emit(dl.NegOp, emit(dl.MulOp, r[j, t], r[t, j]))
    squares = [emit(dl.MulOp, r[k, t], r[k, t]) for k in range(count) if k != t]
    total = squares[0]
    for square in squares[1:]:
        total = emit(dl.AddOp, total, square)
    return total


def _coupling_step(
    emit: Emitter, matrix: ImportedValue, p: ImportedValue, active: ImportedValue, *, count: int
) -> Sequence[ImportedValue]:
    """Run one iteration for all rows; converged rows are unchanged."""

    def rows(k: int) -> ImportedValue:
        return emit.slice(matrix, 1, k * count, (k + 1) * count)

    def column(x: ImportedValue, k: int) -> ImportedValue:
        return emit.slice(x, 1, k, k + 1)

    def total(x: ImportedValue, y: ImportedValue) -> ImportedValue:
        return emit(dl.ReduceSumOp, emit(dl.MulOp, x, y), axes=(1,), keepdims=True)

    previous = p
    qp = emit(dl.ConcatOp, *(total(rows(k), p) for k in range(count)), axis=1)
    pqp = total(p, qp)
    error = emit(dl.ReduceMaxOp, emit(dl.AbsOp, emit(dl.SubOp, qp, pqp)), axes=(1,), keepdims=True)
    is_unconverged = emit(dl.GreaterEqualOp, error, emit.scalar(_COUPLING_TOLERANCE / count, error))
    active = emit(dl.MulOp, active, emit.cast(is_unconverged, active.element_type))
    one = emit.scalar(1, p)
    for t in range(count):
        qtt = column(rows(t), t)
        change = emit(dl.DivOp, emit(dl.SubOp, pqp, column(qp, t)), qtt)
        scale = emit(dl.AddOp, change, one)
        doubled = emit(dl.AddOp, column(qp, t), column(qp, t))
        updated = emit(dl.AddOp, pqp, emit(dl.MulOp, change, emit(dl.AddOp, emit(dl.MulOp, change, qtt), doubled)))
        pqp = emit(dl.DivOp, updated, emit(dl.MulOp, scale, scale))
        unit = np.zeros((1, count), np.float32)
        unit[0, t] = 1
        p = emit(dl.DivOp, emit(dl.AddOp, p, emit(dl.MulOp, change, emit.constant(unit))), scale)
        qp = emit(dl.DivOp, emit(dl.AddOp, qp, emit(dl.MulOp, change, rows(t))), scale)
    is_active = emit(dl.GreaterOp, active, emit.scalar(0, active))
    return emit(dl.SelectOp, is_active, p, previous), active

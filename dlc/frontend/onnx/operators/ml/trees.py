"""Tree ensembles: node comparisons become tables, and one op sums the leaves that a row reaches.

%y = dl.tree_ensemble %x, @nodes, @roots, @levels, @weights {kind = "add"}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype
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
from dlc.frontend.onnx.operators.ml.tree_tables import MODES, ForestTables, NodeMode, TreeNodes, build_forest_tables
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.problems import NodeProblem
from dlc.shapes.dims import Dim

table = ConverterTable()

_F32, _F64 = ELEMENT_TYPES["float32"], ELEMENT_TYPES["float64"]
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_KINDS = {"AVERAGE": "add", "SUM": "add", "MIN": "min", "MAX": "max"}


@dataclass(frozen=True)
class TreeEnsemble:
    """Trees, and the weight of each node for each output, which is 0 except in leaves."""

    tables: ForestTables
    weights: Array
    # For each output, whether any leaf has a weight for it.
    has_weight: Array


@table("TreeEnsembleRegressor")
def tree_ensemble_regressor(node: OnnxNode) -> ImportedValue:
    x, outputs = _input(node), node.integer("n_targets", 1)
    ensemble = _ensemble_by_ids(node, x, outputs, "target")
    y = _aggregate(node, x, ensemble, node.choice("aggregate_function", "SUM", _AGGREGATES))
    base = _floats(node, "base_values", y)
    if base is not None:
        y = node.emit(dl.AddOp, y, row_constant(node, base, outputs, "base_values"))
    return node.emit.cast(apply_post_transform(node, y, node.choice("post_transform", "NONE", TRANSFORMS)), _F32)


@table("TreeEnsembleClassifier")
def tree_ensemble_classifier(node: OnnxNode) -> Sequence[ImportedValue]:
    x, classes = _input(node), class_labels(node, "classlabels_int64s", "classlabels_strings")
    count = 1 if classes is None else int(classes.shape[0])
    ensemble = _ensemble_by_ids(node, x, count, "class")
    scores, transform = _aggregate(node, x, ensemble, "SUM"), node.choice("post_transform", "NONE", TRANSFORMS)
    base, emit = _floats(node, "base_values", scores), node.emit
    if count > 2 or ensemble.has_weight.sum() > 1:
        if base is not None:
            scores = emit(dl.AddOp, scores, row_constant(node, base, count, "base_values"))
        case = ScoreCase.PER_CLASS
    else:
        # All weights are for one class: its score decides for or against it.
        weighted_class = int(np.flatnonzero(ensemble.has_weight)[0]) if ensemble.has_weight.any() else 0
        scores = emit.slice(scores, 1, weighted_class, weighted_class + 1)
        if base is not None:
            scores = emit(dl.AddOp, scores, row_constant(node, base, 1, "base_values"))
        case = ScoreCase.PROBABILITY if (ensemble.weights >= 0).all() else ScoreCase.MARGIN
    label, scores = labels_and_scores(node, scores, classes, case, transform)
    return [label, emit.cast(scores, _F32)]


@table("TreeEnsemble")
def tree_ensemble(node: OnnxNode) -> ImportedValue:
    x, outputs = _input(node), node.integer("n_targets", 1)
    ensemble = _ensemble(node, x, outputs)
    y = _aggregate(node, x, ensemble, _AGGREGATES[_choice_by_index(node, "aggregate_function", 1, _AGGREGATES)])
    return apply_post_transform(node, y, TRANSFORMS[_choice_by_index(node, "post_transform", 0, TRANSFORMS)])


def _choice_by_index(node: OnnxNode, name: str, default: int, choices: Sequence[str]) -> int:
    number = node.integer(name, default)
    if not 0 <= number < len(choices):
        raise ModelError(f"{node.description}: {name} = {number}; expected 0 to {len(choices) - 1}: {', '.join(choices)}")
    return number


def _input(node: OnnxNode) -> ImportedValue:
    """Return the input as rows of f32 or f64."""
    x = node[0]
    if x.rank == 1:
        x = node.emit.reshape(x, (1, *x.shape))
    if x.rank != 2:
        raise ModelError(f"{node.description}: expected features [n, columns], got shape {list(x.shape)}")
    return x if x.element_type == _F64 else node.emit.cast(x, _F32)


def _features(node: OnnxNode, x: ImportedValue) -> int:
    count = x.shape[1]
    if isinstance(count, Dim):
        raise NodeProblem(
            "value", f"the number of features depends on the symbolic size {count}; give the model's input shapes"
        )
    return count


def _aggregate(node: OnnxNode, x: ImportedValue, ensemble: TreeEnsemble, aggregate: str) -> ImportedValue:
    """Aggregate the weights of the leaves that each row reaches."""
    emit, tables = node.emit, ensemble.tables
    if tables.has_negated_features:
        x = emit(dl.ConcatOp, x, emit(dl.NegOp, x), axis=1)
    operands = {"nodes": tables.nodes, "roots": tables.roots, "levels": tables.levels, "weights": ensemble.weights}
    constants = (emit.constant(array, name=f"{node.proto.output[0]}.{name}") for name, array in operands.items())
    y = emit(dl.TreeEnsembleOp, x, *constants, kind=_KINDS[aggregate])
    return emit(dl.DivOp, y, emit.scalar(len(tables.roots), y)) if aggregate == "AVERAGE" else y


def _floats(node: OnnxNode, name: str, like: ImportedValue | None = None) -> Array | None:
    """Return a list of floats, from an attribute or its tensor variant `<name>_as_tensor`; None if it is empty."""
    if node.has_attribute(f"{name}_as_tensor"):
        values = node.array_attribute(f"{name}_as_tensor").reshape(-1)
    else:
        values = np.asarray(node.reals(name, ()), np.float32)
    if not values.size:
        return None
    return values.astype(numpy_dtype(like.element_type)) if like is not None else values


def _ensemble_by_ids(node: OnnxNode, x: ImportedValue, outputs: int, weight_prefix: str) -> TreeEnsemble:
    """Build the ensemble of versions before 5: nodes are identified by tree and node ids."""
    trees, ids = (np.asarray(node.integers(f"nodes_{name}ids"), np.int64) for name in ("tree", "node"))
    modes = node.strings("nodes_modes", ())
    node.ignore_attributes("nodes_hitrates", "nodes_hitrates_as_tensor")
    if unknown_modes := sorted(set(modes) - set(MODES)):
        raise ModelError(f"{node.description}: node mode '{unknown_modes[0]}'; expected one of {', '.join(MODES)}")
    mode = np.fromiter(map(MODES.__getitem__, modes), np.int64, len(modes))
    features, true_child, false_child = (
        np.asarray(node.integers(f"nodes_{n}ids"), np.int64) for n in ("feature", "truenode", "falsenode")
    )
    threshold = _floats(node, "nodes_values")
    missing_is_true = np.asarray(node.integers("nodes_missing_value_tracks_true", (0,) * len(trees)), np.int64)
    columns = [trees, ids, mode, features, true_child, false_child, threshold, missing_is_true]
    if not trees.size or any(c is None or len(c) != len(trees) for c in columns):
        raise ModelError(f"{node.description}: its lists of nodes are empty or have different lengths")
    assert threshold is not None
    threshold = threshold.astype(numpy_dtype(x.element_type))
    node_index = _NodeIndex(node.description, trees, ids)
    is_leaf, own_index = mode == NodeMode.LEAF, np.arange(len(trees))
    true_child, false_child = (
        np.where(is_leaf, own_index, node_index.of(trees, np.where(is_leaf, ids, child_ids)))
        for child_ids in (true_child, false_child)
    )
    nodes = TreeNodes(mode, features, threshold, true_child, false_child, missing_is_true)
    # The first node of a tree is its root.
    _, root_indices = np.unique(trees, return_index=True)
    values, targets, weight_trees, weight_nodes = _weights(node, weight_prefix, outputs)
    weights, has_weight = np.zeros((len(trees), outputs), threshold.dtype), np.zeros(outputs, bool)
    if len(values):
        np.add.at(weights, (node_index.of(weight_trees, weight_nodes), targets), values.astype(threshold.dtype))
        has_weight[targets] = True
    return _build_ensemble(node, x, nodes, np.sort(root_indices), weights, has_weight)


def _weights(node: OnnxNode, prefix: str, outputs: int) -> tuple[Array, Array, Array, Array]:
    """Return the weights, the outputs that they are for, and the ids of their trees and nodes."""
    values = _floats(node, f"{prefix}_weights")
    targets, trees, ids = (np.asarray(node.integers(f"{prefix}_{name}"), np.int64) for name in ("ids", "treeids", "nodeids"))
    values = np.zeros(0, np.float32) if values is None else values
    if len({len(values), len(targets), len(trees), len(ids)}) != 1:
        raise ModelError(f"{node.description}: its lists of weights have different lengths")
    if targets.size and not (targets.min() >= 0 and targets.max() < outputs):
        raise ModelError(f"{node.description}: a weight is for output {int(targets.max())} of {outputs}")
    return values, targets, trees, ids


def _build_ensemble(
    node: OnnxNode, x: ImportedValue, nodes: TreeNodes, roots: Array, weights: Array, has_weight: Array
) -> TreeEnsemble:
    tables = build_forest_tables(node.description, nodes, roots, _features(node, x))
    extra = len(tables.nodes) - len(weights)
    return TreeEnsemble(tables, np.pad(weights, ((0, extra), (0, 0))) if extra else weights, has_weight)


class _NodeIndex:
    """Find nodes by tree id and node id."""

    def __init__(self, description: str, trees: Array, ids: Array) -> None:
        self.description = description
        self.node_ids = trees, ids
        self.trees, self.ids = np.unique(trees), np.unique(ids)
        keys = self._keys(trees, ids)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]

    def _keys(self, trees: Array, ids: Array) -> Array:
        """Return a key for each pair of ids; unknown ids get the key of another pair."""
        return np.searchsorted(self.trees, trees) * (len(self.ids) + 1) + np.searchsorted(self.ids, ids)

    def of(self, trees: Array, ids: Array) -> Array:
        # Of several nodes with equal ids, use the last one.
        position = np.searchsorted(self.keys, self._keys(trees, ids), side="right") - 1
        nodes = self.order[position]
        invalid = np.flatnonzero((self.node_ids[0][nodes] != trees) | (self.node_ids[1][nodes] != ids))
        if invalid.size:
            raise ModelError(f"{self.description}: tree {trees[invalid[0]]} has no node {ids[invalid[0]]}")
        return nodes


def _ensemble(node: OnnxNode, x: ImportedValue, outputs: int) -> TreeEnsemble:
    """Build the ensemble of version 5: nodes and leaves are numbered consecutively."""
    dtype = numpy_dtype(x.element_type)
    names = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs")
    feature, true_child, false_child, is_true_leaf, is_false_leaf = (
        np.asarray(node.integers(name), np.int64) for name in names
    )
    mode, threshold = (
        node.array_attribute("nodes_modes").astype(np.int64).reshape(-1),
        node.array_attribute("nodes_splits").reshape(-1),
    )
    missing = np.asarray(node.integers("nodes_missing_value_tracks_true", (0,) * len(mode)), np.int64)
    node.ignore_attributes("nodes_hitrates")
    roots, target = (np.asarray(node.integers(name), np.int64) for name in ("tree_roots", "leaf_targetids"))
    weight = node.array_attribute("leaf_weights").astype(dtype).reshape(-1)
    if len(
        {len(c) for c in (feature, true_child, false_child, is_true_leaf, is_false_leaf, mode, threshold, missing)}
    ) != 1 or len(weight) != len(target):
        raise ModelError(f"{node.description}: its lists of nodes or of leaves have different lengths")
    if mode.size and not (mode.min() >= 0 and mode.max() <= NodeMode.MEMBER):
        raise ModelError(f"{node.description}: node mode {int(mode.max())}; expected 0 to {int(NodeMode.MEMBER)}")
    if target.size and not (target.min() >= 0 and target.max() < outputs):
        raise ModelError(f"{node.description}: a leaf is for output {int(target.max())} of {outputs}")
    # Leaves follow the nodes; other invalid indices are reported by build_forest_tables.
    node_count, leaves = len(mode), len(weight)
    for child_indices, is_leaf_child in ((true_child, is_true_leaf), (false_child, is_false_leaf)):
        if child_indices.size and (
            child_indices.min() < 0 or (child_indices >= np.where(is_leaf_child, leaves, node_count)).any()
        ):
            raise ModelError(f"{node.description}: a child index is out of range")
    leaf_nodes = np.arange(node_count, node_count + leaves)
    nodes = TreeNodes(
        np.concatenate([mode, np.full(leaves, NodeMode.LEAF)]),
        np.concatenate([feature, np.zeros(leaves, np.int64)]),
        np.concatenate([threshold.astype(dtype), np.zeros(leaves, dtype)]),
        np.concatenate([np.where(is_true_leaf, true_child + node_count, true_child), leaf_nodes]),
        np.concatenate([np.where(is_false_leaf, false_child + node_count, false_child), leaf_nodes]),
        np.concatenate([missing, np.zeros(leaves, np.int64)]),
    )
    nodes = nodes.expand_membership(_members(node, int((mode == NodeMode.MEMBER).sum())))
    weights, has_weight = np.zeros((len(nodes), outputs), dtype), np.zeros(outputs, bool)
    weights[leaf_nodes, target] = weight
    has_weight[target] = True
    return _build_ensemble(node, x, nodes, roots, weights, has_weight)


def _members(node: OnnxNode, count: int) -> list[list[float]]:
    """Return the set of values of each membership node; a NaN ends each list in the attribute."""
    if not node.has_attribute("membership_values"):
        value_lists: list[list[float]] = []
    else:
        values = node.array_attribute("membership_values").astype(np.float64).reshape(-1)
        segments = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
        value_lists = [segment[~np.isnan(segment)].tolist() for segment in segments if segment.size]
    if len(value_lists) != count:
        raise ModelError(f"{node.description}: membership_values has {len(value_lists)} lists for {count} nodes")
    return value_lists

"""Ensembles of trees: what nodes ask becomes tables, and the sum over the leaves that a row reaches is one op.

%y = dl.forest %x, @nodes, @roots, @levels, @weights {kind = "add"}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import ELEMENT_TYPES, numpy_dtype
from dlc.dims import Dim
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators.ml.scores import TRANSFORMS, Case, classes_of, decided, row_of, transformed
from dlc.frontend.onnx.operators.ml.tree_tables import MODES, Ask, Nodes, Tables, tables_of
from dlc.frontend.onnx.registry import Table
from dlc.frontend.problems import NodeProblem

table = Table()

_F32, _F64 = ELEMENT_TYPES["float32"], ELEMENT_TYPES["float64"]
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_KINDS = {"AVERAGE": "add", "SUM": "add", "MIN": "min", "MAX": "max"}


@dataclass(frozen=True)
class Ensemble:
    """Trees, and what each node weighs for each output: 0 but in leaves."""

    tables: Tables
    weights: Array
    # Whether any leaf says something of an output.
    spoken: Array


@table("TreeEnsembleRegressor")
def tree_ensemble_regressor(node: Node) -> Value:
    x, outputs = _input(node), node.integer("n_targets", 1)
    ensemble = _ensemble_by_names(node, x, outputs, "target")
    y = _aggregated(node, x, ensemble, node.choice("aggregate_function", "SUM", _AGGREGATES))
    base = _floats(node, "base_values", y)
    if base is not None:
        y = node.emit(dl.AddOp, y, row_of(node, base, outputs, "base_values"))
    return node.emit.cast(transformed(node, y, node.choice("post_transform", "NONE", TRANSFORMS)), _F32)


@table("TreeEnsembleClassifier")
def tree_ensemble_classifier(node: Node) -> Sequence[Value]:
    x, classes = _input(node), classes_of(node, "classlabels_int64s", "classlabels_strings")
    count = 1 if classes is None else int(classes.shape[0])
    ensemble = _ensemble_by_names(node, x, count, "class")
    scores, transform = _aggregated(node, x, ensemble, "SUM"), node.choice("post_transform", "NONE", TRANSFORMS)
    base, emit = _floats(node, "base_values", scores), node.emit
    if count > 2 or ensemble.spoken.sum() > 1:
        if base is not None:
            scores = emit(dl.AddOp, scores, row_of(node, base, count, "base_values"))
        case = Case.OF_CLASS
    else:
        # Trees that speak of one class only: what it gets tells for or against it.
        one = int(np.flatnonzero(ensemble.spoken)[0]) if ensemble.spoken.any() else 0
        scores = emit.slice(scores, 1, one, one + 1)
        if base is not None:
            scores = emit(dl.AddOp, scores, row_of(node, base, 1, "base_values"))
        case = Case.SHARE if (ensemble.weights >= 0).all() else Case.SIGN
    label, scores = decided(node, scores, classes, case, transform)
    return [label, emit.cast(scores, _F32)]


@table("TreeEnsemble")
def tree_ensemble(node: Node) -> Value:
    x, outputs = _input(node), node.integer("n_targets", 1)
    ensemble = _ensemble(node, x, outputs)
    y = _aggregated(node, x, ensemble, _AGGREGATES[_numbered(node, "aggregate_function", 1, _AGGREGATES)])
    return transformed(node, y, TRANSFORMS[_numbered(node, "post_transform", 0, TRANSFORMS)])


def _numbered(node: Node, name: str, default: int, choices: Sequence[str]) -> int:
    number = node.integer(name, default)
    if not 0 <= number < len(choices):
        raise ModelError(f"{node.place}: {name} = {number}; expected 0 to {len(choices) - 1}: {', '.join(choices)}")
    return number


def _input(node: Node) -> Value:
    """Rows of floats of 32 or 64 bits."""
    x = node[0]
    if x.rank == 1:
        x = node.emit.reshape(x, (1, *x.shape))
    if x.rank != 2:
        raise ModelError(f"{node.place}: rows of features have two axes, got {list(x.shape)}")
    return x if x.element_type == _F64 else node.emit.cast(x, _F32)


def _features(node: Node, x: Value) -> int:
    count = x.shape[1]
    if isinstance(count, Dim):
        raise NodeProblem("value", f"how many features a row has hangs on the size {count}; give the model's input shapes")
    return count


def _aggregated(node: Node, x: Value, ensemble: Ensemble, how: str) -> Value:
    """What the leaves weigh that each row reaches, in one."""
    emit, tables = node.emit, ensemble.tables
    if tables.mirrored:
        x = emit(dl.ConcatOp, x, emit(dl.NegOp, x), axis=1)
    operands = {"nodes": tables.nodes, "roots": tables.roots, "levels": tables.levels, "weights": ensemble.weights}
    constants = (emit.constant(array, name=f"{node.proto.output[0]}.{name}") for name, array in operands.items())
    y = emit(dl.ForestOp, x, *constants, kind=_KINDS[how])
    return emit(dl.DivOp, y, emit.scalar(len(tables.roots), y)) if how == "AVERAGE" else y


def _floats(node: Node, name: str, like: Value | None = None) -> Array | None:
    """A list of floats, which may be given as a tensor."""
    if node.has(f"{name}_as_tensor"):
        found = node.tensor(f"{name}_as_tensor").reshape(-1)
    else:
        found = np.asarray(node.reals(name, ()), np.float32)
    if not found.size:
        return None
    return found.astype(numpy_dtype(like.element_type)) if like is not None else found


def _ensemble_by_names(node: Node, x: Value, outputs: int, weighing: str) -> Ensemble:
    """The trees of versions before 5: nodes have numbers by tree, and weights say whose they are."""
    trees, numbers = (np.asarray(node.integers(f"nodes_{name}ids"), np.int64) for name in ("tree", "node"))
    modes = node.texts("nodes_modes", ())
    node.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    if unknown := sorted(set(modes) - set(MODES)):
        raise ModelError(f"{node.place}: a node asks '{unknown[0]}'; expected one of {', '.join(MODES)}")
    ask = np.fromiter(map(MODES.__getitem__, modes), np.int64, len(modes))
    features, yes, no = (np.asarray(node.integers(f"nodes_{n}ids"), np.int64) for n in ("feature", "truenode", "falsenode"))
    threshold = _floats(node, "nodes_values")
    missing = np.asarray(node.integers("nodes_missing_value_tracks_true", (0,) * len(trees)), np.int64)
    columns = [trees, numbers, ask, features, yes, no, threshold, missing]
    if not trees.size or any(c is None or len(c) != len(trees) for c in columns):
        raise ModelError(f"{node.place}: its lists of nodes have different lengths, or none")
    assert threshold is not None
    threshold = threshold.astype(numpy_dtype(x.element_type))
    names = _Names(node.place, trees, numbers)
    leaf, here = ask == Ask.LEAF, np.arange(len(trees))
    yes, no = (np.where(leaf, here, names.of(trees, np.where(leaf, numbers, to))) for to in (yes, no))
    nodes = Nodes(ask, features, threshold, yes, no, missing)
    # A tree begins with the node of it that comes first.
    _, first = np.unique(trees, return_index=True)
    of, to, weight_trees, weight_nodes = _weights(node, weighing, outputs)
    weights, spoken = np.zeros((len(trees), outputs), threshold.dtype), np.zeros(outputs, bool)
    if len(of):
        np.add.at(weights, (names.of(weight_trees, weight_nodes), to), of.astype(threshold.dtype))
        spoken[to] = True
    return _made(node, x, nodes, np.sort(first), weights, spoken)


def _weights(node: Node, kind: str, outputs: int) -> tuple[Array, Array, Array, Array]:
    """Weights, the outputs that they are for, and the trees and nodes that they belong to."""
    of = _floats(node, f"{kind}_weights")
    to, trees, numbers = (np.asarray(node.integers(f"{kind}_{name}"), np.int64) for name in ("ids", "treeids", "nodeids"))
    of = np.zeros(0, np.float32) if of is None else of
    if len({len(of), len(to), len(trees), len(numbers)}) != 1:
        raise ModelError(f"{node.place}: its lists of weights have different lengths")
    if to.size and not (to.min() >= 0 and to.max() < outputs):
        raise ModelError(f"{node.place}: a weight is for output {int(to.max())} of {outputs}")
    return of, to, trees, numbers


def _made(node: Node, x: Value, nodes: Nodes, roots: Array, weights: Array, spoken: Array) -> Ensemble:
    tables = tables_of(node.place, nodes, roots, _features(node, x))
    more = len(tables.nodes) - len(weights)
    return Ensemble(tables, np.pad(weights, ((0, more), (0, 0))) if more else weights, spoken)


class _Names:
    """Nodes by their tree and their number in it."""

    def __init__(self, place: str, trees: Array, numbers: Array) -> None:
        self.place = place
        self.given = trees, numbers
        self.trees, self.numbers = np.unique(trees), np.unique(numbers)
        keys = self._keys(trees, numbers)
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]

    def _keys(self, trees: Array, numbers: Array) -> Array:
        """A number for each pair of what is known; of what is not, that of another pair."""
        return np.searchsorted(self.trees, trees) * (len(self.numbers) + 1) + np.searchsorted(self.numbers, numbers)

    def of(self, trees: Array, numbers: Array) -> Array:
        # Of nodes with one number the last counts.
        at = np.searchsorted(self.keys, self._keys(trees, numbers), side="right") - 1
        found = self.order[at]
        wrong = np.flatnonzero((self.given[0][found] != trees) | (self.given[1][found] != numbers))
        if wrong.size:
            raise ModelError(f"{self.place}: tree {trees[wrong[0]]} has no node {numbers[wrong[0]]}")
        return found


def _ensemble(node: Node, x: Value, outputs: int) -> Ensemble:
    """The trees of version 5: nodes and leaves have numbers of their own, and follow one another by these."""
    dtype = numpy_dtype(x.element_type)
    names = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs")
    feature, yes, no, yes_leaf, no_leaf = (np.asarray(node.integers(name), np.int64) for name in names)
    ask, threshold = node.tensor("nodes_modes").astype(np.int64).reshape(-1), node.tensor("nodes_splits").reshape(-1)
    missing = np.asarray(node.integers("nodes_missing_value_tracks_true", (0,) * len(ask)), np.int64)
    node.ignore("nodes_hitrates")
    roots, target = (np.asarray(node.integers(name), np.int64) for name in ("tree_roots", "leaf_targetids"))
    weight = node.tensor("leaf_weights").astype(dtype).reshape(-1)
    if len({len(c) for c in (feature, yes, no, yes_leaf, no_leaf, ask, threshold, missing)}) != 1 or len(weight) != len(target):
        raise ModelError(f"{node.place}: its lists of nodes or of leaves have different lengths")
    if ask.size and not (ask.min() >= 0 and ask.max() <= Ask.MEMBER):
        raise ModelError(f"{node.place}: a node asks {int(ask.max())}; expected 0 to {int(Ask.MEMBER)}")
    if target.size and not (target.min() >= 0 and target.max() < outputs):
        raise ModelError(f"{node.place}: a leaf is for output {int(target.max())} of {outputs}")
    # Leaves come behind the nodes; a member of neither is found by its number later.
    behind, leaves = len(ask), len(weight)
    for to, to_leaf in ((yes, yes_leaf), (no, no_leaf)):
        if to.size and (to.min() < 0 or (to >= np.where(to_leaf, leaves, behind)).any()):
            raise ModelError(f"{node.place}: a node leads to one that is not there")
    here = np.arange(behind, behind + leaves)
    nodes = Nodes(
        np.concatenate([ask, np.full(leaves, Ask.LEAF)]),
        np.concatenate([feature, np.zeros(leaves, np.int64)]),
        np.concatenate([threshold.astype(dtype), np.zeros(leaves, dtype)]),
        np.concatenate([np.where(yes_leaf, yes + behind, yes), here]),
        np.concatenate([np.where(no_leaf, no + behind, no), here]),
        np.concatenate([missing, np.zeros(leaves, np.int64)]),
    )
    nodes = nodes.with_members(_members(node, int((ask == Ask.MEMBER).sum())))
    weights, spoken = np.zeros((len(nodes), outputs), dtype), np.zeros(outputs, bool)
    weights[here, target] = weight
    spoken[target] = True
    return _made(node, x, nodes, roots, weights, spoken)


def _members(node: Node, count: int) -> list[list[float]]:
    """What each node asks a number to be one of: the lists end with NaN."""
    if not node.has("membership_values"):
        found: list[list[float]] = []
    else:
        values = node.tensor("membership_values").astype(np.float64).reshape(-1)
        parts = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
        found = [part[~np.isnan(part)].tolist() for part in parts if part.size]
    if len(found) != count:
        raise ModelError(f"{node.place}: membership_values has {len(found)} lists for {count} nodes")
    return found

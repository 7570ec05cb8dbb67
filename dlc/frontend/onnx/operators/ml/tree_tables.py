"""Build the tables of `dl.tree_ensemble`: every comparison of a tree node becomes `value <= threshold` with two children.

    x < t       x <= the largest value below t      x >= t      -x <= -t, in an extra column of negated features
    x == t      x <= t, and if so -x <= -t          NaN         goes to the false child

A node that sends missing values, NaN, to the true child is negated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.dialects.dl.library_kernels.decision_trees import TREES_PER_GROUP
from dlc.errors import ModelError


class NodeMode(IntEnum):
    """The comparison of a node, with the values of the operator TreeEnsemble; and LEAF."""

    LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)


# Mode names before version 5.
MODES = {
    **{
        f"BRANCH_{mode.name}": mode
        for mode in (NodeMode.LEQ, NodeMode.LT, NodeMode.GTE, NodeMode.GT, NodeMode.EQ, NodeMode.NEQ)
    },
    "LEAF": NodeMode.LEAF,
}
_NEGATED = {NodeMode.LEQ: NodeMode.GT, NodeMode.LT: NodeMode.GTE, NodeMode.GTE: NodeMode.LT, NodeMode.GT: NodeMode.LEQ}


@dataclass(frozen=True)
class TreeNodes:
    """The nodes of all trees, one entry per node in each array; children are node indices."""

    mode: Array
    feature: Array
    threshold: Array
    true_child: Array
    false_child: Array
    missing_is_true: Array

    def __len__(self) -> int:
        return len(self.mode)

    def expand_membership(self, members: Sequence[Sequence[float]]) -> TreeNodes:
        """Replace each membership node by a chain of equality nodes."""
        member_nodes = np.flatnonzero(self.mode == NodeMode.MEMBER)
        new_nodes: list[tuple[int, int, float, int, int, bool]] = []
        columns = [
            c.copy() for c in (self.mode, self.feature, self.threshold, self.true_child, self.false_child, self.missing_is_true)
        ]
        for node, set_members in zip(member_nodes, members, strict=True):
            feature, true_child, false_child, missing = (
                int(c[node]) for c in (self.feature, self.true_child, self.false_child, self.missing_is_true)
            )
            # An empty set contains nothing; a missing value is handled by the first node.
            chain = [(NodeMode.EQ, feature, t, true_child, false_child, bool(missing)) for t in set_members] or [
                (NodeMode.LT, feature, -np.inf, true_child, false_child, bool(missing))
            ]
            for k in range(len(chain) - 1):
                chain[k] = (*chain[k][:4], len(self) + len(new_nodes) + k, chain[k][5])
            for column, value in zip(columns, chain[0], strict=True):
                column[node] = value
            new_nodes += chain[1:]
        appended = (np.asarray([node[k] for node in new_nodes], column.dtype) for k, column in enumerate(columns))
        return TreeNodes(*(np.concatenate(pair) for pair in zip(columns, appended, strict=True)))


@dataclass(frozen=True)
class ForestTables:
    """The tables of `dl.tree_ensemble`; with `has_negated_features`, the features are followed by their negations."""

    nodes: Array
    roots: Array
    levels: Array

    has_negated_features: bool


def build_forest_tables(description: str, nodes: TreeNodes, roots: Array, features: int) -> ForestTables:
    """Build the tables of the trees with these roots, for rows of `features` columns.

    Raises ModelError for an index that is out of range, or a cycle.
    """
    count = len(nodes)
    is_inner = nodes.mode != NodeMode.LEAF
    for name, indices, limit in (
        ("feature", nodes.feature[is_inner], features),
        ("node", nodes.true_child, count),
        ("node", nodes.false_child, count),
        ("root", roots, count),
    ):
        if indices.size and not (indices.min() >= 0 and indices.max() < limit):
            out_of_range = int(indices.min() if indices.min() < 0 else indices.max())
            raise ModelError(f"{description}: {name} index {out_of_range} is out of range for {limit}")
    expanded = _expand_equalities(nodes)
    table = _less_equal_table(expanded, features)
    levels = _levels(description, table, expanded.mode == NodeMode.LEAF, roots)
    levels = np.pad(levels, (0, -len(levels) % TREES_PER_GROUP)).reshape(-1, TREES_PER_GROUP).max(1)
    return ForestTables(table, roots.astype(np.int32), levels.astype(np.int32), bool((table[:, 0] >= features).any()))


def _expand_equalities(nodes: TreeNodes) -> TreeNodes:
    """Replace x == t by two comparisons, of which the second is a new node."""
    indices = np.flatnonzero((nodes.mode == NodeMode.EQ) | (nodes.mode == NodeMode.NEQ))
    if not indices.size:
        return nodes
    is_equality = nodes.mode[indices] == NodeMode.EQ
    if_equal, if_unequal = (
        np.where(is_equality, a[indices], b[indices])
        for a, b in ((nodes.true_child, nodes.false_child), (nodes.false_child, nodes.true_child))
    )
    # NaN compares unequal; where it must count as equal, test x < t and x > t instead.
    negated = is_equality & nodes.missing_is_true[indices].astype(bool)
    second_node = len(nodes) + np.arange(len(indices))
    mode, true_child, false_child = nodes.mode.copy(), nodes.true_child.copy(), nodes.false_child.copy()
    mode[indices] = np.where(negated, NodeMode.LT, NodeMode.LEQ)
    true_child[indices], false_child[indices] = (
        np.where(negated, if_unequal, second_node),
        np.where(negated, second_node, if_unequal),
    )
    missing_is_true = nodes.missing_is_true.copy()
    missing_is_true[indices] = False
    return TreeNodes(
        np.concatenate([mode, np.where(negated, NodeMode.GT, NodeMode.GTE)]),
        np.concatenate([nodes.feature, nodes.feature[indices]]),
        np.concatenate([nodes.threshold, nodes.threshold[indices]]),
        np.concatenate([true_child, np.where(negated, if_unequal, if_equal)]),
        np.concatenate([false_child, np.where(negated, if_equal, if_unequal)]),
        np.concatenate([missing_is_true, np.zeros(len(indices), missing_is_true.dtype)]),
    )


def _less_equal_table(nodes: TreeNodes, features: int) -> Array:
    """Return the rows of the table: every comparison as `<=`."""
    is_leaf, missing = nodes.mode == NodeMode.LEAF, nodes.missing_is_true.astype(bool)
    negated = np.zeros(len(NodeMode), nodes.mode.dtype)
    negated[list(_NEGATED)] = list(_NEGATED.values())
    mode = np.where(missing & ~is_leaf, negated[nodes.mode], nodes.mode)
    is_negated, is_strict = np.isin(mode, (NodeMode.GTE, NodeMode.GT)), np.isin(mode, (NodeMode.LT, NodeMode.GT))
    threshold = np.where(is_negated, -nodes.threshold, nodes.threshold)
    # Nothing is below -inf: comparisons with NaN are false.
    next_lower = np.where(np.isneginf(threshold), np.nan, np.nextafter(threshold, threshold.dtype.type(-np.inf)))
    threshold = np.where(is_strict, next_lower, threshold)
    own_index = np.arange(len(nodes))
    integer = np.dtype(f"i{threshold.itemsize}")
    columns = (
        np.where(is_leaf, 0, nodes.feature + np.where(is_negated, features, 0)),
        threshold.astype(nodes.threshold.dtype).view(integer),
        np.where(is_leaf, own_index, np.where(missing, nodes.false_child, nodes.true_child)),
        np.where(is_leaf, own_index, np.where(missing, nodes.true_child, nodes.false_child)),
    )
    return np.ascontiguousarray(np.stack([c.astype(integer) for c in columns], 1))


def _levels(description: str, table: Array, leaf: Array, roots: Array) -> Array:
    """Return the depth of each tree."""
    levels = np.zeros(len(roots), np.int64)
    node, tree = roots.astype(np.int64), np.arange(len(roots))
    for level in range(1, len(table) + 1):
        inner = ~leaf[node]
        node, tree = node[inner], tree[inner]
        if not node.size:
            return levels
        levels[tree] = level
        children = np.concatenate([table[node, k].astype(np.int64) * len(roots) + tree for k in (2, 3)])
        node, tree = np.divmod(np.unique(children), len(roots))
    if (~leaf[node]).any():
        raise ModelError(f"{description}: the nodes of a tree form a cycle")
    return levels

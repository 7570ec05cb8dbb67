"""Evaluate ensembles of decision trees: combine the weights of the leaves that a row of features leads to."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import dlc.kernels as k
from dlc.dialects import dl
from dlc.dialects.dl.library_kernels.decision_trees import FEATURE, IF_ABOVE, IF_AT_MOST, THRESHOLD, TREES_PER_GROUP
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.library_kernels.vectors import split_extent

# Rows per task. Each row traverses the trees of a group in parallel, which hides load latency; the nodes of a group stay in
# cache for all rows.
_ROWS_PER_TASK = 32
# Outputs per vector.
_OUTPUTS_PER_VECTOR = 8
# For each kind: the identity and the combiner.
_AGGREGATIONS: dict[str, tuple[float, Callable[[Value, Value], Value]]] = {
    "add": (0.0, operator.add),
    "min": (np.inf, k.minimum),
    "max": (-np.inf, k.maximum),
}


def forest(
    op: dl.TreeEnsembleOp,
    x: ArrayReference,
    nodes: ArrayReference,
    roots: ArrayReference,
    levels: ArrayReference,
    weights: ArrayReference,
    y: ArrayReference,
) -> None:
    """Evaluate a few rows per task; each row traverses several trees in parallel."""
    rows, outputs = y.shape
    identity, combine = _AGGREGATIONS[op.kind.data]

    def clamped(value: Value, size: Any) -> Value:
        """Return an index, or the last one if it is out of range."""
        return k.assume_index(k.minimum(value.view(f"u{value.dtype.itemsize}"), size - 1), size)

    def next_node(row: Value, node: Value) -> Value:
        is_at_most = x[row, clamped(nodes[node, FEATURE], x.shape[1])] <= nodes[node, THRESHOLD].view(x.dtype)
        return clamped(nodes[node, k.select(is_at_most, k.index(IF_AT_MOST), k.index(IF_ABOVE))], nodes.shape[0])

    for task in k.grid((rows + _ROWS_PER_TASK - 1) // _ROWS_PER_TASK, parallel=1):
        first = task * _ROWS_PER_TASK
        end = k.minimum(first + _ROWS_PER_TASK, rows)
        for row in k.range(first, end):
            for output, width in k.strips(outputs, _OUTPUTS_PER_VECTOR):
                y.store(row, output, value=k.full(width, identity, y.dtype))
        for first_tree, count, groups in split_extent(roots.shape[0], TREES_PER_GROUP):
            for group in k.range(groups):
                trees = [(group * TREES_PER_GROUP + first_tree) + t for t in range(count)]
                first_nodes = [clamped(roots[tree], nodes.shape[0]) for tree in trees]
                steps = k.index(levels[group + first_tree // TREES_PER_GROUP])
                for row in k.range(first, end):
                    current = [k.variable(node, size=nodes.shape[0]) for node in first_nodes]
                    for _ in k.range(steps):
                        for variable in current:
                            variable.value = next_node(row, variable.value)
                    leaves = [variable.value for variable in current]
                    for output, width in k.strips(outputs, _OUTPUTS_PER_VECTOR):
                        total = y.load(row, output, width=width)
                        for leaf in leaves:
                            total = combine(total, weights.load(leaf, output, width=width))
                        y.store(row, output, value=total)

"""Evaluate ensembles of decision trees: combine the weights of the leaves that a row of features leads to."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.library_kernels.decision_trees import FEATURE, IF_ABOVE, IF_AT_MOST, THRESHOLD, TREES_PER_GROUP
from dlc.passes.library_kernels.builder import Buffer, KernelBuilder, split_extent
from dlc.passes.library_kernels.values import KernelValue, maximum, minimum, select
from dlc.passes.types import vector_type

# Rows per task. Each row traverses the trees of a group in parallel, which hides load latency; the nodes of a group stay in
# cache for all rows.
_ROWS_PER_TASK = 32
# Outputs per vector.
_OUTPUTS_PER_VECTOR = 8
# For each kind: the identity and the combiner.
_AGGREGATIONS: dict[str, tuple[float, Callable[[KernelValue, KernelValue], KernelValue]]] = {
    "add": (0.0, operator.add),
    "min": (np.inf, minimum),
    "max": (-np.inf, maximum),
}


def forest(builder: KernelBuilder, op: dl.TreeEnsembleOp, *buffers: Buffer) -> None:
    """Evaluate a few rows per task; each row traverses several trees in parallel."""
    x, nodes, roots, levels, weights, y = buffers
    rows, outputs = shape_of(op.result)
    identity, combine = _AGGREGATIONS[op.kind.data]
    last_node, last_feature = builder.size(shape_of(op.nodes)[0] - 1), builder.size(shape_of(op.x)[1] - 1)

    def clamped_node(index: KernelValue) -> KernelValue:
        return builder.minimum_index(index.as_index(), last_node)

    def next_node(row: KernelValue, node_index: KernelValue) -> KernelValue:
        threshold = nodes[node_index, THRESHOLD].bits_as(builder.element)
        feature = builder.minimum_index(nodes[node_index, FEATURE].as_index(), last_feature)
        is_at_most = x[row, feature] <= threshold
        return clamped_node(nodes[node_index, select(is_at_most, builder.index(IF_AT_MOST), builder.index(IF_ABOVE))])

    def store_row(row: KernelValue, compute: Callable[[KernelValue, int], KernelValue]) -> None:
        """Store `compute(start, width)` to each vector of a row of results."""
        for first, width, count in split_extent(outputs, _OUTPUTS_PER_VECTOR):
            with builder.loop(0, builder.size(count), name="part") as tile:
                start = tile * width + first
                y.set_row(row, start, row=compute(start, width))

    def identities(start: KernelValue, width: int) -> KernelValue:
        return builder.number(identity, vector_type((width,), builder.element))

    with builder.parallel_ranges(rows, _ROWS_PER_TASK) as (start, end):
        with builder.loop(start, end, name="row") as row:
            store_row(row, identities)
        for first_tree, count, groups in split_extent(shape_of(op.roots)[0], TREES_PER_GROUP):
            with builder.loop(0, builder.size(groups), name="group") as group_index:
                group = group_index + first_tree // TREES_PER_GROUP
                trees = [group * TREES_PER_GROUP + k for k in range(count)]
                first_nodes = [clamped_node(roots[tree]) for tree in trees]
                steps = levels[group].as_index()
                with builder.loop(start, end, name="row") as row:
                    current_nodes = [builder.cell(first) for first in first_nodes]
                    with builder.loop(0, steps, name="level"):
                        for cell in current_nodes:
                            cell.value = next_node(row, cell.value)
                    leaves = [cell.value for cell in current_nodes]

                    def add_leaves(
                        start: KernelValue, width: int, row: KernelValue = row, leaves: list[KernelValue] = leaves
                    ) -> KernelValue:
                        total = y.row(row, start, width=width)
                        for leaf in leaves:
                            total = combine(total, weights.row(leaf, start, width=width))
                        return total

                    store_row(row, add_leaves)

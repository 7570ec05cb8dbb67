"""Decision trees: what the leaves weigh that a row of numbers reaches in many trees."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.procedures.trees import BEYOND, FEATURE, THRESHOLD, TREES_AT_ONCE, WITHIN
from dlc.passes.procedures.code import Buffer, Code, parts
from dlc.passes.procedures.values import Value, maximum, minimum, select
from dlc.passes.types import vector_type

# So many rows go down some trees one after the other: while the numbers that one step hangs on are on their way, the steps
# of the others are made, and the nodes of these trees stay in the cache.
_ROWS = 32
# How many outputs are added at once.
_LANES = 8
# By kind: what begins, and what comes of two.
_KINDS: dict[str, tuple[float, Callable[[Value, Value], Value]]] = {
    "add": (0.0, operator.add),
    "min": (np.inf, minimum),
    "max": (-np.inf, maximum),
}


def forest(code: Code, op: dl.ForestOp, *buffers: Buffer) -> None:
    """Some rows are a task; they go down some trees at once."""
    x, nodes, roots, levels, weights, y = buffers
    rows, outputs = shape_of(op.result)
    nothing, combine = _KINDS[op.kind.data]
    last_node, last_feature = code.size(shape_of(op.nodes)[0] - 1), code.size(shape_of(op.x)[1] - 1)

    def node(number: Value) -> Value:
        return code.least(number.as_index(), last_node)

    def following(row: Value, at: Value) -> Value:
        threshold = nodes[at, THRESHOLD].bits_as(code.element)
        feature = code.least(nodes[at, FEATURE].as_index(), last_feature)
        within = x[row, feature] <= threshold
        return node(nodes[at, select(within, code.index(WITHIN), code.index(BEYOND))])

    def columns(row: Value, change: Callable[[Value, int], Value]) -> None:
        """Gives each part of a row of results what `change(start, width)` makes."""
        for first, width, count in parts(outputs, _LANES):
            with code.loop(0, code.size(count), name="part") as part:
                start = part * width + first
                y.set_row(row, start, row=change(start, width))

    def nothing_yet(start: Value, width: int) -> Value:
        return code.number(nothing, vector_type((width,), code.element))

    with code.shares(rows, _ROWS) as (start, end):
        with code.loop(start, end, name="row") as row:
            columns(row, nothing_yet)
        for before, count, groups in parts(shape_of(op.roots)[0], TREES_AT_ONCE):
            with code.loop(0, code.size(groups), name="group") as counted:
                group = counted + before // TREES_AT_ONCE
                trees = [group * TREES_AT_ONCE + k for k in range(count)]
                first_nodes = [node(roots[tree]) for tree in trees]
                steps = levels[group].as_index()
                with code.loop(start, end, name="row") as row:
                    reached = [code.cell(first) for first in first_nodes]
                    with code.loop(0, steps, name="level"):
                        for cell in reached:
                            cell.value = following(row, cell.value)
                    leaves = [cell.value for cell in reached]

                    def added(start: Value, width: int, row: Value = row, leaves: list[Value] = leaves) -> Value:
                        total = y.row(row, start, width=width)
                        for leaf in leaves:
                            total = combine(total, weights.row(leaf, start, width=width))
                        return total

                    columns(row, added)

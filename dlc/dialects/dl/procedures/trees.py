"""Decision trees: what the leaves weigh that a row of numbers reaches in many trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.contractions.contraction import differ
from dlc.dialects.dl.interfaces import Sequential
from dlc.errors import DTypeError, ShapeError
from dlc.ir import (
    StringAttr,
    TensorType,
    f32,
    f64,
    i32,
    i64,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)

# So many trees are walked down at once.
TREES_AT_ONCE = 8
# What `nodes` say, by column.
FEATURE, THRESHOLD, WITHIN, BEYOND = range(4)
# By kind: what begins, and what comes of two.
_KINDS = {"add": (0.0, np.add), "min": (np.inf, np.minimum), "max": (-np.inf, np.maximum)}


@irdl_op_definition
class ForestOp(Sequential):
    """`y[n, c]`: the sum (`kind` add), the least (min) or the largest (max) of `weights[leaf, c]` over the leaves that row
    `x[n]` reaches, one in each of t trees.

    `nodes` [m, 4] has a row for each node: a column of `x`, the bits of a threshold, the node to go to where the number in
    that column is at most the threshold, and the one to go to where it is not, or is NaN; a leaf leads to itself. `roots` [t]
    has the node that each tree begins with, `levels` [⌈t/8⌉] for every 8 trees how many steps are made in each of them;
    `weights` [m, c] is read where they end.
    (C1) `x` and `weights` are f32 and `nodes` is i32, or they are f64 and i64; the others are i32; (C2) m, t and c are known
    in a kernel; (C3) m and f are not 0. A column or node that is not there is the last one; no trees make 0, inf or -inf.
    """

    name = "dl.forest"
    x = operand_def(TensorType)
    nodes = operand_def(TensorType)
    roots = operand_def(TensorType)
    levels = operand_def(TensorType)
    weights = operand_def(TensorType)
    kind = prop_def(StringAttr)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        elements = tuple(map(element_type_of, self.operands))
        if elements not in ((f32, i32, i32, i32, f32), (f64, i64, i32, i32, f64)):
            raise DTypeError(f"dl.forest: operands of {', '.join(map(str, elements))}; see (C1)")
        x, nodes, roots, levels, weights = map(shape_of, self.operands)
        if [len(s) for s in (x, nodes, roots, levels, weights)] != [2, 2, 1, 1, 2] or differ(nodes[1], 4):
            shapes = f"x {x}, nodes {nodes}, roots {roots}, levels {levels}, weights {weights}"
            raise ShapeError(f"dl.forest: {shapes}; expected [n, f], [m, 4], [t], [⌈t/8⌉] and [m, c]")
        if differ(levels[0], -(-roots[0] // TREES_AT_ONCE)):
            raise ShapeError(f"dl.forest: {levels[0]} levels for {roots[0]} trees; expected one for every {TREES_AT_ONCE}")
        if differ(nodes[0], weights[0]) or nodes[0] == 0 or x[1] == 0:
            shapes = f"x {x}, nodes {nodes}, weights {weights}"
            raise ShapeError(f"dl.forest: {shapes}; expected a column, and a row of both tables for each node (C3)")
        if self.kind.data not in _KINDS:
            raise ShapeError(f"dl.forest: kind {self.kind.data!r}; expected {', '.join(_KINDS)}")
        return [tensor_type((x[0], weights[1]), elements[0])]

    def reference(self, *operands: Array) -> Array:
        x, nodes, roots, levels, weights = operands
        first, combine = _KINDS[self.kind.data]
        thresholds: Array = np.ascontiguousarray(nodes[:, THRESHOLD]).view(x.dtype)
        y = np.full((len(x), weights.shape[1]), first, x.dtype)
        rows, begin = np.arange(len(x)), np.zeros(len(x), np.int64)
        for tree, root in enumerate(roots.tolist()):
            at: Array = _inside(begin + root, len(nodes))
            for _ in range(levels[tree // TREES_AT_ONCE]):
                within: Array = x[rows, _inside(nodes[at, FEATURE], x.shape[1])] <= thresholds[at]
                at = _inside(nodes[at, np.where(within, WITHIN, BEYOND)], len(nodes))
            y = combine(y, weights[at])
        return y


def _inside(places: Array, count: int) -> Array:
    """Places in an axis; one that is not there is the last."""
    return np.where((places < 0) | (places >= count), count - 1, places)

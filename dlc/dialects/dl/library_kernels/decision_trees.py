"""Evaluation of decision tree ensembles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.interfaces import RowwiseKernel
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
from dlc.shapes.dims import is_known_different, is_known_less

# The trees of a group are traversed in an interleaved loop.
TREES_PER_GROUP = 8
# The columns of `nodes`.
FEATURE, THRESHOLD, IF_AT_MOST, IF_ABOVE = range(4)
# The initial value and the combination of each kind.
_KINDS = {"add": (0.0, np.add), "min": (np.inf, np.minimum), "max": (-np.inf, np.maximum)}


@irdl_op_definition
class TreeEnsembleOp(RowwiseKernel):
    """`y[n, c]`: the sum (`kind` add), minimum (min) or maximum (max) of `weights[leaf, c]` over the leaves of `x[n]`.

    `nodes` [m, 4] has a row per node: a column of `x`, the bits of a threshold, and two successors. The first is the next node
    if the value in that column is at most the threshold, the second if it is above or NaN. The successors of a leaf are the
    leaf. `roots` [t] are the root nodes of the trees, `levels` [⌈t/8⌉] the number of steps per group of 8 trees; `weights` [m,
    c] is read at the last node of each tree.
    (C1) `x` and `weights` are f32 and `nodes` is i32, or they are f64 and i64; the others are i32; (C2) m, t and c are static
    in a kernel; (C3) m and f are not 0. A column or node index out of range is replaced by the last; without trees the result
    is 0, inf or -inf.
    """

    name = "dl.tree_ensemble"
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
            expected = "f32, i32, i32, i32, f32 or f64, i64, i32, i32, f64"
            raise DTypeError(f"dl.tree_ensemble: element types {', '.join(map(str, elements))}; expected {expected} (C1)")
        x, nodes, roots, levels, weights = map(shape_of, self.operands)
        if [len(s) for s in (x, nodes, roots, levels, weights)] != [2, 2, 1, 1, 2] or is_known_different(nodes[1], 4):
            shapes = f"x {x}, nodes {nodes}, roots {roots}, levels {levels}, weights {weights}"
            raise ShapeError(f"dl.tree_ensemble: {shapes}; expected [n, f], [m, 4], [t], [⌈t/8⌉] and [m, c]")
        if is_known_different(levels[0], -(-roots[0] // TREES_PER_GROUP)):
            raise ShapeError(
                f"dl.tree_ensemble: {levels[0]} levels for {roots[0]} trees; expected one per {TREES_PER_GROUP} trees"
            )
        if is_known_different(nodes[0], weights[0]) or is_known_less(nodes[0], 1) or is_known_less(x[1], 1):
            shapes = f"x {x}, nodes {nodes}, weights {weights}"
            raise ShapeError(f"dl.tree_ensemble: {shapes}; expected a column, and equal rows of nodes and weights (C3)")
        if self.kind.data not in _KINDS:
            raise ShapeError(f"dl.tree_ensemble: kind {self.kind.data!r}; expected {', '.join(_KINDS)}")
        return [tensor_type((x[0], weights[1]), elements[0])]

    def reference(self, *operands: Array) -> Array:
        x, nodes, roots, levels, weights = operands
        initial, combine = _KINDS[self.kind.data]
        thresholds: Array = np.ascontiguousarray(nodes[:, THRESHOLD]).view(x.dtype)
        y = np.full((len(x), weights.shape[1]), initial, x.dtype)
        rows, zeros = np.arange(len(x)), np.zeros(len(x), np.int64)
        for tree, root in enumerate(roots.tolist()):
            node_indices: Array = _replace_out_of_bounds(zeros + root, len(nodes))
            for _ in range(levels[tree // TREES_PER_GROUP]):
                is_at_most: Array = (
                    x[rows, _replace_out_of_bounds(nodes[node_indices, FEATURE], x.shape[1])] <= thresholds[node_indices]
                )
                node_indices = _replace_out_of_bounds(
                    nodes[node_indices, np.where(is_at_most, IF_AT_MOST, IF_ABOVE)], len(nodes)
                )
            y = combine(y, weights[node_indices])
        return y


def _replace_out_of_bounds(indices: Array, count: int) -> Array:
    """Return indices with those out of bounds replaced by the last."""
    return np.where((indices < 0) | (indices >= count), count - 1, indices)

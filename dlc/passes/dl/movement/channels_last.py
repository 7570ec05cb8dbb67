"""Move transposes past ops that are independent of the axis order, until they cancel.

Convolutions compute on channels-last tensors; a channels-first model has a transpose before and after each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import TypeAlias

from dlc.dialects.dl.base import DlOp, ints, rank_of, shape_of, sizes
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import Elementwise, Reduction, RowComposite
from dlc.dialects.dl.movement.indexing import GatherOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ConcatOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.reductions.reduction import AxisReduction
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, contains
from dlc.passes.dl.rewriting import (
    defining_op,
    inverse,
    permutes_only_unit_axes,
    program_blocks,
    reshaped,
    rewrite_forward,
    transposed,
)
from dlc.shapes.dims import Size
from dlc.shapes.reshapes import reshape_groups

Values: TypeAlias = "Sequence[SSAValue] | None"

# Maximum ops to search for an inverse transpose: a resize of an image along two axes takes fourteen.
_MAX_LOOKAHEAD_OPS = 32


@dataclass(frozen=True)
class ChannelsLastPass(ModulePass):
    """`channels-last`: f(transpose(x)) = transpose(f(x)), forward through the program; pairs of transposes cancel.

        %a = dl.transpose %conv1 {permutation = [0, 3, 1, 2]};  %r = dl.relu %a
        %b = dl.transpose %r {permutation = [0, 2, 3, 1]};  %y = dl.conv %b, %w
    →   %r = dl.relu %conv1;  %y = dl.conv %r, %w

    f is elementwise, a pad, slice, concatenation, reduction, row composite, broadcast, or a reshape that keeps the transposed
    axes separate. A transpose moves past a gather of slices, whose result may be much larger than its input, only if an inverse
    transpose is near. The inverse transpose of the other operands must be free: they have the same transpose, are weights, or
    the transpose only permutes their unit axes. So no other tensor gets a transpose. Remaining transposes that only permute
    unit axes become reshapes; a remaining transpose of a pad moves before the pad.

    Requires static shapes and decomposed composites, reductions with `keepdims` (`simplify`).
    """

    name = "channels-last"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant = WeightExpressions()
        for block in program_blocks(op) if contains(op, TransposeOp) else ():
            rewrite_forward(block, _TransposeSinker(constant).sink)
            rewrite_forward(block, _simplify_transpose, TransposeOp)


def _simplify_transpose(op: TransposeOp) -> Values:
    """Simplify a transpose that did not cancel.

    A transpose of unit axes becomes a reshape. A transpose of a pad moves before the pad, to fuse with its kernel.
    """
    if permutes_only_unit_axes(shape_of(op.x), op.axes):
        return [reshaped(DlBuilder(op), op.x, shape_of(op.result))]
    pad = defining_op(op.x, PadOp)
    if pad is None or not op.x.has_one_use():
        return None
    build = DlBuilder(pad)
    low, high = _permute(ints(pad.low), op.axes), _permute(ints(pad.high), op.axes)
    transposed_operand = transposed(build, pad.x, op.axes)
    return [DlBuilder(op)(PadOp, transposed_operand, pad.value, **{**pad.properties, "low": low, "high": high})]


class _TransposeSinker:
    """Sinks transposes, by one rule per op class.

    `p` is always the permutation of the transposed operand, `x` the value before the transpose.
    """

    def __init__(self, constant: WeightExpressions) -> None:
        self.constant = constant

    def sink(self, op: DlOp) -> Values:
        """Return the op's results computed from untransposed operands, or None to leave it."""
        if isinstance(op, TransposeOp):
            inner = defining_op(op.x, TransposeOp)
            return [transposed(DlBuilder(op), op.x, op.axes)] if inner is not None else None
        transposes = [t for v in op.operands if (t := defining_op(v, TransposeOp)) is not None and v not in self.constant]
        return self._rule(op, transposes[0]) if transposes else None

    @singledispatchmethod
    def _rule(self, op: DlOp, transpose: TransposeOp) -> Values:
        return None

    @_rule.register
    def _(self, op: Elementwise, transpose: TransposeOp) -> Values:
        permutation, shape = transpose.axes, shape_of(op.results[0])
        build = DlBuilder(op)
        full = [t for v in op.operands if (t := defining_op(v, TransposeOp)) is not None and shape_of(v) == shape]
        if not any(t.axes == permutation for t in full):
            return None
        operands = [self._untransposed(build, v, permutation) for v in op.operands]
        untransposed = [v for v in operands if v is not None]
        return (
            [transposed(build, build(type(op), *untransposed, **op.properties), permutation)]
            if len(untransposed) == len(operands)
            else None
        )

    def _untransposed(self, build: DlBuilder, value: SSAValue, permutation: Sequence[int]) -> SSAValue | None:
        """Return `value`, which broadcasts with the result, inversely transposed; None if that takes a copy."""
        inner = defining_op(value, TransposeOp)
        if inner is not None and inner.axes == tuple(permutation):
            return inner.x
        shape = shape_of(value)
        if all(s == 1 for s in shape):
            return value
        inverse_axes = inverse(permutation)
        shape = (*(1,) * (len(permutation) - len(shape)), *shape)
        if permutes_only_unit_axes(shape, inverse_axes):
            return reshaped(build, value, [shape[a] for a in inverse_axes])
        return transposed(build, reshaped(build, value, shape), inverse_axes) if value in self.constant else None

    @_rule.register
    def _(self, op: PadOp, transpose: TransposeOp) -> Values:
        build, inverse_axes = DlBuilder(op), inverse(transpose.axes)
        low, high = _permute(ints(op.low), inverse_axes), _permute(ints(op.high), inverse_axes)
        padded = build(PadOp, transpose.x, op.value, **{**op.properties, "low": low, "high": high})
        return [transposed(build, padded, transpose.axes)]

    @_rule.register
    def _(self, op: SliceOp, transpose: TransposeOp) -> Values:
        build, inverse_axes = DlBuilder(op), inverse(transpose.axes)
        starts, limits, strides = (_permute(v, inverse_axes) for v in (sizes(op.starts), sizes(op.limits), ints(op.strides)))
        return [transposed(build, build(SliceOp, transpose.x, starts=starts, limits=limits, strides=strides), transpose.axes)]

    @_rule.register
    def _(self, op: GatherOp, transpose: TransposeOp) -> Values:
        if op.x is not transpose.result or rank_of(op.indices) != 1 or not _cancels(op.result, inverse(transpose.axes)):
            return None
        build = DlBuilder(op)
        gathered = build(GatherOp, transpose.x, op.indices, **{**op.properties, "axis": transpose.axes[op.indexed_axis]})
        return [transposed(build, gathered, transpose.axes)]

    @_rule.register
    def _(self, op: ReverseOp, transpose: TransposeOp) -> Values:
        build = DlBuilder(op)
        reverse = build(ReverseOp, transpose.x, axes=tuple(transpose.axes[a] for a in op.reversed_axes))
        return [transposed(build, reverse, transpose.axes)]

    @_rule.register
    def _(self, op: BroadcastToOp, transpose: TransposeOp) -> Values:
        shape, permutation = sizes(op.shape), transpose.axes
        if len(shape) != len(permutation):
            return None
        build = DlBuilder(op)
        return [transposed(build, build(BroadcastToOp, transpose.x, shape=_permute(shape, inverse(permutation))), permutation)]

    @_rule.register
    def _(self, op: ConcatOp, transpose: TransposeOp) -> Values:
        permutation, build = transpose.axes, DlBuilder(op)
        operands = [self._untransposed(build, v, permutation) for v in op.values]
        untransposed = [v for v in operands if v is not None and rank_of(v) == len(permutation)]
        if len(untransposed) != len(operands):
            return None
        return [transposed(build, build(ConcatOp, *untransposed, axis=permutation[op.concat_axis]), permutation)]

    @_rule.register
    def _(self, op: Reduction, transpose: TransposeOp) -> Values:
        if not isinstance(op, AxisReduction) or not op.keeps_reduced_axes:
            return None
        build, permutation = DlBuilder(op), transpose.axes
        axes = tuple(sorted(permutation[a] for a in op.reduction_axes))
        return [transposed(build, build(type(op), transpose.x, axes=axes, keepdims=True), permutation)]

    @_rule.register
    def _(self, op: RowComposite, transpose: TransposeOp) -> Values:
        # Only functions along one axis without parameters along it.
        if len(op.operands) != 1 or "axis" not in op.properties or len(op.row_axes) != 1:
            return None
        build, permutation = DlBuilder(op), transpose.axes
        return [
            transposed(
                build, build(type(op), transpose.x, **{**op.properties, "axis": permutation[op.row_axes[0]]}), permutation
            )
        ]

    @_rule.register
    def _(self, op: ReshapeOp, transpose: TransposeOp) -> Values:
        permutation, build = transpose.axes, DlBuilder(op)
        if permutes_only_unit_axes(shape_of(transpose.x), permutation):
            return [reshaped(build, transpose.x, shape_of(op.result))]
        source, result = shape_of(op.x), shape_of(op.result)
        groups = reshape_groups(source, result)
        # Each group of axes must be adjacent and in order before the transpose too.
        order: list[tuple[int, int]] = []
        position = -1
        for k, (axes, _) in enumerate(groups):
            source_axes = [permutation[a] for a in axes if source[a] != 1] or [permutation[a] for a in axes[:1]]
            between = range(source_axes[0], source_axes[-1] + 1) if source_axes else ()
            if source_axes != sorted(source_axes) or any(
                a not in source_axes and shape_of(transpose.x)[a] != 1 for a in between
            ):
                return None
            position = source_axes[0] if source_axes else position
            order.append((position, k))
        axes = [a for _, k in sorted(order) for a in groups[k][1]]
        shape: list[Size] = [result[a] for a in axes]
        return [transposed(build, reshaped(build, transpose.x, shape), inverse(axes))]


def _cancels(value: SSAValue, axes: Sequence[int]) -> bool:
    """Return whether an inverse transpose by `axes` follows within a few ops that transposes move past."""
    visited, k = [value], 0
    while k < min(len(visited), _MAX_LOOKAHEAD_OPS):
        for user in (use.operation for use in visited[k].uses):
            if isinstance(user, TransposeOp) and user.axes == tuple(axes):
                return True
            if isinstance(user, Elementwise | PadOp | GatherOp | ConcatOp) and user.results[0] not in visited:
                visited.append(user.results[0])
        k += 1
    return False


def _permute(values: Sequence[Size], permutation: Sequence[int]) -> tuple[Size, ...]:
    return tuple(values[a] for a in permutation)

"""Fold per-channel scales and offsets, such as those of BatchNorm, into the weights of contractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MulOp, SubOp
from dlc.dialects.dl.base import element_type_of, memoize_by_signature, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import array_of, is_float
from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.ir import AffineExpr, Context, ModuleOp, ModulePass, SSAValue
from dlc.passes.dl.rewriting import (
    defining_op,
    fused_location,
    program_blocks,
    reshaped,
    rewrite_forward,
    transposed,
)
from dlc.shapes.dims import Size, is_static
from dlc.shapes.reshapes import reshape_groups


@dataclass(frozen=True)
class FoldScalesPass(ModulePass):
    """`fold-scales`: (contract(x, w) + b) · s + t  →  contract(x, w · s) + (b · s + t), with constant w, b, s and t.

        %c = dl.conv %x, %w;  %m = dl.mul %c, %s;  %y = dl.add %m, %t
    →   %v = dl.mul %w, %s;  %c = dl.conv %x, %v;  %y = dl.add %c, %t

    s must be constant along all result axes that do not come from the weights. A constant s that is infinite, or 0 as a
    divisor, is not folded: weights of both signs would become infinities whose sums are NaN. The scaled weights and the sums
    of offsets are weight expressions, evaluated once; sums are reassociated. Run it after `channels-last`, which brings s
    next to the contraction.
    """

    name = "fold-scales"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant = WeightExpressions()
        for block in program_blocks(op):
            folder = _ScaleFolder(constant)
            rewrite_forward(block, folder.fold, AddOp, MulOp, DivOp)


class _ScaleFolder:
    def __init__(self, constant: WeightExpressions) -> None:
        self.constant = constant

    def fold(self, op: AddOp | MulOp | DivOp) -> Sequence[SSAValue] | None:
        if not is_float(element_type_of(op.results[0])):
            return None
        return self._offset(op) if isinstance(op, AddOp) else self._scale(op)

    def _split(self, op: AddOp | SubOp | MulOp | DivOp) -> tuple[SSAValue, SSAValue] | None:
        """Return (runtime operand, constant operand) if the result has the type of the former; else None."""
        x, y = op.operands
        is_x_constant, is_y_constant = x in self.constant, y in self.constant
        if is_x_constant == is_y_constant or (is_x_constant and isinstance(op, DivOp)):
            return None
        value, constant_operand = (y, x) if is_x_constant else (x, y)
        return (value, constant_operand) if value.type == op.results[0].type else None

    # f(contract(x, w) ± b) = contract(x, f(w)) ± f(b), where f multiplies or divides by s
    def _scale(self, op: MulOp | DivOp) -> Sequence[SSAValue] | None:
        split = self._split(op)
        if split is None:
            return None
        value, factor = split
        if not _keeps_finite(op, factor):
            return None
        build = DlBuilder(op)
        offsets: list[AddOp | SubOp] = []
        while (inner := defining_op(value, AddOp) or defining_op(value, SubOp)) is not None and value.has_one_use():
            inner_split = self._split(inner)
            if inner_split is None:
                return None
            offsets.append(inner)
            value = inner_split[0]
        contraction = defining_op(value, Contraction)
        if contraction is None or not value.has_one_use() or contraction.operands[1] not in self.constant:
            return None
        if contraction.parent is not op.parent:
            # It would be computed again in each step of a loop.
            return None
        x, w, *extra_operands = contraction.operands
        aligned = _align_with_weights(build, factor, contraction)
        if extra_operands or aligned is None or element_type_of(w) != element_type_of(factor):
            return None
        scaled = build(type(op), w, aligned)
        with build.at_location(fused_location(contraction, op)):
            result = build(type(contraction), x, scaled, **contraction.properties)
        for offset in reversed(offsets):
            with build.at_location(offset.location):
                operands = [build(type(op), v, factor) if v in self.constant else result for v in offset.operands]
                result = build(type(offset), *operands)
        return [result]

    # (contract(x, w) + b) + t = contract(x, w) + (b + t)
    def _offset(self, op: AddOp) -> Sequence[SSAValue] | None:
        split = self._split(op)
        inner = defining_op(split[0], AddOp) if split is not None else None
        inner_split = self._split(inner) if inner is not None and inner.result.has_one_use() else None
        if split is None or inner_split is None or defining_op(inner_split[0], Contraction) is None:
            return None
        build = DlBuilder(op, fused_location(inner, op) if inner is not None else None)
        total = build(AddOp, inner_split[1], split[1])
        # Adding a row to a column would materialize a matrix.
        if _element_count(total) > max(_element_count(inner_split[1]), _element_count(split[1])):
            return None
        return [build(AddOp, inner_split[0], total)]


def _keeps_finite(op: MulOp | DivOp, factor: SSAValue) -> bool:
    """Return whether scaling by a constant keeps small values finite; assumed for weights."""
    constant = defining_op(factor, ConstantOp)
    if constant is None:
        return True
    values = array_of(constant.value).astype(np.float64)
    return bool(np.isfinite(values).all() and (isinstance(op, MulOp) or values.all()))


def _element_count(value: SSAValue) -> int:
    shape = shape_of(value)
    n = 1
    for s in shape:
        n *= int(s)
    return n


def _align_with_weights(build: DlBuilder, factor: SSAValue, contraction: Contraction) -> SSAValue | None:
    """Reshape a factor of a contraction's result to broadcast with its weights; None if it varies along other axes."""
    if not is_static((*shape_of(contraction.results[0]), *shape_of(contraction.operands[0]))):
        return None
    rank = rank_of(contraction.results[0])
    shape = (1,) * (rank - rank_of(factor)) + shape_of(factor)
    weight_axis = weight_axes(contraction)
    varying_axes = [a for a, s in enumerate(shape) if s != 1]
    if any(a not in weight_axis for a in varying_axes):
        return None
    sorted_axes = sorted(varying_axes, key=lambda a: weight_axis[a])
    other_axes = [a for a in range(rank) if a not in sorted_axes]
    aligned_shape: list[Size] = [1] * rank_of(contraction.operands[1])
    for a in sorted_axes:
        aligned_shape[weight_axis[a]] = shape[a]
    return reshaped(build, transposed(build, reshaped(build, factor, shape), [*other_axes, *sorted_axes]), aligned_shape)


@memoize_by_signature
def weight_axes(contraction: Contraction, k: int = 1) -> dict[int, int]:
    """Map each result axis to the axis of operand `k`, the weights, that it indexes.

    Result axes that only index the data are absent.
    """
    structure = contraction.structure()
    weight_expressions = _axis_index_expressions(
        shape_of(contraction.operands[k]), structure.views[k], structure.maps[k].results
    )
    result_expressions = _axis_index_expressions(
        shape_of(contraction.results[0]), structure.views[-1], structure.maps[-1].results
    )
    axis_of = {expressions: axis for axis, expressions in weight_expressions.items()}
    return {axis: axis_of[expressions] for axis, expressions in result_expressions.items() if expressions in axis_of}


def _axis_index_expressions(
    shape: Sequence[Size], view: Sequence[Size], expressions: Sequence[AffineExpr]
) -> dict[int, tuple[AffineExpr, ...]]:
    """Map each axis larger than 1 to the index expressions of the view axes that it consists of."""
    result: dict[int, tuple[AffineExpr, ...]] = {}
    for axes, view_axes in reshape_groups(shape, view):
        large = [a for a in axes if shape[a] != 1]
        if len(large) == 1:
            result[large[0]] = tuple(expressions[i] for i in view_axes if view[i] != 1)
    return result

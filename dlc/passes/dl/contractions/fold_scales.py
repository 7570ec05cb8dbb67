"""Folds factors and offsets per output channel, such as BatchNorm's, into the weights of contractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MulOp, SubOp
from dlc.dialects.dl.base import element_type_of, of_equal_ops, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import array_of, is_float
from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dims import Size, is_static
from dlc.ir import AffineExpr, Context, ModuleOp, ModulePass, SSAValue
from dlc.passes.dl.rewriting import (
    defining,
    fused_location,
    program_blocks,
    reshape_groups,
    reshaped,
    rewrite_forward,
    transposed,
)


@dataclass(frozen=True)
class FoldScalesPass(ModulePass):
    """`fold-scales`: (contract(x, w) + b) · s + t  →  contract(x, w · s) + (b · s + t), with w, b, s and t known ahead of time.

        %c = dl.conv %x, %w;  %m = dl.mul %c, %s;  %y = dl.add %m, %t
    →   %v = dl.mul %w, %s;  %c = dl.conv %x, %v;  %y = dl.add %c, %t

    s must be constant along all axes of the result that do not come from the weights, and no constant that is infinite, or 0
    where it divides: weights of both signs would be infinities whose sums are NaN. The product and the sums of weights are
    expressions, evaluated once; sums are reassociated. Run it after `channels-last`, which brings s next to the
    contraction.
    """

    name = "fold-scales"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant = WeightExpressions()
        for block in program_blocks(op):
            folder = _Folder(constant)
            rewrite_forward(block, folder.fold, AddOp, MulOp, DivOp)


class _Folder:
    def __init__(self, constant: WeightExpressions) -> None:
        self.constant = constant

    def fold(self, op: AddOp | MulOp | DivOp) -> Sequence[SSAValue] | None:
        if not is_float(element_type_of(op.results[0])):
            return None
        return self._offset(op) if isinstance(op, AddOp) else self._scale(op)

    def _split(self, op: AddOp | SubOp | MulOp | DivOp) -> tuple[SSAValue, SSAValue] | None:
        """The operand that is computed at run time and the one known ahead, if the result has the former's shape."""
        x, y = op.operands
        x_known, y_known = x in self.constant, y in self.constant
        if x_known == y_known or (x_known and isinstance(op, DivOp)):
            return None
        value, known = (y, x) if x_known else (x, y)
        return (value, known) if value.type == op.results[0].type else None

    # f(contract(x, w) ± b) = contract(x, f(w)) ± f(b), where f multiplies or divides by s
    def _scale(self, op: MulOp | DivOp) -> Sequence[SSAValue] | None:
        split = self._split(op)
        if split is None:
            return None
        value, factor = split
        if not _is_bounded(op, factor):
            return None
        b = Build(op)
        offsets: list[AddOp | SubOp] = []
        while (inner := defining(value, AddOp) or defining(value, SubOp)) is not None and value.has_one_use():
            parts = self._split(inner)
            if parts is None:
                return None
            offsets.append(inner)
            value = parts[0]
        contraction = defining(value, Contraction)
        if contraction is None or not value.has_one_use() or contraction.operands[1] not in self.constant:
            return None
        if contraction.parent is not op.parent:
            # It would be computed again in each step of a loop.
            return None
        x, w, *others = contraction.operands
        aligned = _along_weights(b, factor, contraction)
        if others or aligned is None or element_type_of(w) != element_type_of(factor):
            return None
        scaled = b(type(op), w, aligned)
        with b.at(fused_location(contraction, op)):
            result = b(type(contraction), x, scaled, **contraction.properties)
        for offset in reversed(offsets):
            with b.at(offset.location):
                operands = [b(type(op), v, factor) if v in self.constant else result for v in offset.operands]
                result = b(type(offset), *operands)
        return [result]

    # (contract(x, w) + b) + t = contract(x, w) + (b + t)
    def _offset(self, op: AddOp) -> Sequence[SSAValue] | None:
        split = self._split(op)
        inner = defining(split[0], AddOp) if split is not None else None
        parts = self._split(inner) if inner is not None and inner.result.has_one_use() else None
        if split is None or parts is None or defining(parts[0], Contraction) is None:
            return None
        b = Build(op, fused_location(inner, op) if inner is not None else None)
        total = b(AddOp, parts[1], split[1])
        # A row plus a column would be a matrix.
        if _elements(total) > max(_elements(parts[1]), _elements(split[1])):
            return None
        return [b(AddOp, parts[0], total)]


def _is_bounded(op: MulOp | DivOp, factor: SSAValue) -> bool:
    """Whether an op with a constant factor makes finite numbers of small ones; taken for true of weights."""
    constant = defining(factor, ConstantOp)
    if constant is None:
        return True
    values = array_of(constant.value).astype(np.float64)
    return bool(np.isfinite(values).all() and (isinstance(op, MulOp) or values.all()))


def _elements(value: SSAValue) -> int:
    shape = shape_of(value)
    n = 1
    for s in shape:
        n *= int(s)
    return n


def _along_weights(b: Build, factor: SSAValue, contraction: Contraction) -> SSAValue | None:
    """A factor of a contraction's result as one of its weights; None if it varies along other axes."""
    if not is_static((*shape_of(contraction.results[0]), *shape_of(contraction.operands[0]))):
        return None
    rank = rank_of(contraction.results[0])
    shape = (1,) * (rank - rank_of(factor)) + shape_of(factor)
    place = weight_axes(contraction)
    varying = [a for a, s in enumerate(shape) if s != 1]
    if any(a not in place for a in varying):
        return None
    order = sorted(varying, key=lambda a: place[a])
    rest = [a for a in range(rank) if a not in order]
    aligned: list[Size] = [1] * rank_of(contraction.operands[1])
    for a in order:
        aligned[place[a]] = shape[a]
    return reshaped(b, transposed(b, reshaped(b, factor, shape), [*rest, *order]), aligned)


@of_equal_ops
def weight_axes(contraction: Contraction, k: int = 1) -> dict[int, int]:
    """Which axis of operand k, the weights, each axis of the result moves along with; axes of the data alone have none."""
    structure = contraction.structure()
    of_weights = _places(shape_of(contraction.operands[k]), structure.views[k], structure.maps[k].results)
    of_result = _places(shape_of(contraction.results[0]), structure.views[-1], structure.maps[-1].results)
    by_place = {place: axis for axis, place in of_weights.items()}
    return {axis: by_place[place] for axis, place in of_result.items() if place in by_place}


def _places(
    shape: Sequence[Size], view: Sequence[Size], expressions: Sequence[AffineExpr]
) -> dict[int, tuple[AffineExpr, ...]]:
    """For each axis larger than 1, the index expressions that the axes of its view have."""
    result: dict[int, tuple[AffineExpr, ...]] = {}
    for axes, parts in reshape_groups(shape, view):
        large = [a for a in axes if shape[a] != 1]
        if len(large) == 1:
            result[large[0]] = tuple(expressions[i] for i in parts if view[i] != 1)
    return result

"""Folds the scale of a quantisation into the factors of what is quantised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.arithmetic.elementwise import AddOp, MaximumOp, MinimumOp, MulOp, ReluOp, SubOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import is_integer
from dlc.dialects.dl.interfaces import Movement
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.narrow_numbers.quantization import DequantizeOp, QuantizeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.scalar import limits
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, f32
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward, splat


@dataclass(frozen=True)
class FoldQuantizationPass(ModulePass):
    """`fold-quantization`: quantize(x · a + b, s, z)  =  quantize(x · (a / s) + b / s, 1, z), with a and b known.

        %m = dl.mul %x, %a;  %y = dl.add %m, %b;  %q = dl.quantize %y, 0.5, %z
    →   %m = dl.mul %x, %a2;  %y = dl.add %m, %b2;  %q = dl.quantize %y, 1.0, %z

    So no division is left. What is dequantised has its scale multiplied; what has no factor to fold into is multiplied by
    1 / s. Results are those of another order of roundings: a quantised number may be the next one, where it was between the
    two. Requires scales that are known numbers, above zero; others stay.

        quantize(relu(x), s, z)  =  quantize(x, s, z), where z is the lowest number that there is
    """

    name = "fold-quantization"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant = WeightExpressions()
        for block in program_blocks(op):
            rewrite_forward(block, _Folder(constant).folded, QuantizeOp)


class _Folder:
    def __init__(self, constant: WeightExpressions) -> None:
        self.constant = constant

    def folded(self, op: QuantizeOp) -> Sequence[SSAValue] | None:
        if _is_lowest_at_zero(op) and (x := _without_floor(Build(op), op.x)) is not None:
            return [Build(op)(QuantizeOp, x, op.scale, op.zero_point, axis=op.axis, to=op.to)]
        if element_type_of(op.x) != f32 or rank_of(op.scale):
            return None
        scale = np.float32(splat(op.scale) or 0)
        factor = np.float32(1) / scale if scale > 0 else np.float32(np.inf)
        if scale == 1 or not np.isfinite(factor) or op.x in self.constant:
            return None
        b = Build(op)
        by = b.scalar(float(factor), like=op.scale)
        x = self.scaled(b, op.x, by) if self.has_factors(op.x) else b(MulOp, op.x, by)
        return [b(QuantizeOp, x, b.scalar(1.0, like=op.scale), op.zero_point, axis=op.axis, to=op.to)]

    def has_factors(self, value: SSAValue) -> bool:
        """Whether all that `value` is a sum or an extremum of has a factor that is known, and nobody else reads it between."""
        op = value.owner
        if value in self.constant or (isinstance(op, DequantizeOp) and element_type_of(op.scale) == f32):
            return True
        if not value.has_one_use():
            return False
        match op:
            case MulOp():
                return any(v in self.constant for v in op.operands)
            case AddOp() | SubOp() | MaximumOp() | MinimumOp() | ReluOp() | ReshapeOp() | Movement():
                return all(map(self.has_factors, op.operands))
            case _:
                return False

    def scaled(self, b: Build, value: SSAValue, by: SSAValue) -> SSAValue:
        """`value · by`, which is above zero, made of the same by other factors."""
        op = value.owner
        assert isinstance(op, DlOp)
        with b.at(op.location):
            if value in self.constant:
                return b(MulOp, value, by)
            if isinstance(op, DequantizeOp):
                return b(DequantizeOp, op.x, b(MulOp, op.scale, by), op.zero_point, axis=op.axis)
            if isinstance(op, MulOp):
                known = next(v for v in op.operands if v in self.constant)
                return b(MulOp, *(b(MulOp, v, by) if v is known else v for v in op.operands))
            return b(type(op), *(self.scaled(b, v, by) for v in op.operands), **op.properties)


def _is_lowest_at_zero(op: QuantizeOp) -> bool:
    """Whether no number is quantised below what 0 is."""
    stored, scale = element_type_of(op.zero_point), splat(op.scale)
    return is_integer(stored) and splat(op.zero_point) == limits(stored)[0] and scale is not None and scale > 0


def _without_floor(b: Build, value: SSAValue) -> SSAValue | None:
    """`x` of `relu(x)`, or of a maximum with what is not above zero; within minima too. None where there is none of it."""
    op = value.owner
    if isinstance(op, ReluOp):
        return op.operands[0]
    if not isinstance(op, MaximumOp | MinimumOp) or (limit := splat(op.operands[1])) is None:
        return None
    if isinstance(op, MaximumOp):
        return op.operands[0] if limit <= 0 else None
    x = _without_floor(b, op.operands[0])
    return None if x is None else b(MinimumOp, x, op.operands[1])

"""Fold quantization scales into the scales and factors of the quantized values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.arithmetic.elementwise import AddOp, MaximumOp, MinimumOp, MulOp, ReluOp, SubOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import is_integer
from dlc.dialects.dl.interfaces import DataMovement
from dlc.dialects.dl.low_precision.quantization import DequantizeOp, QuantizeOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.scalar import limits
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, f32
from dlc.passes.dl.rewriting import program_blocks, rewrite_forward, splat


@dataclass(frozen=True)
class FoldQuantizationPass(ModulePass):
    """`fold-quantization`: quantize(x · a + b, s, z)  =  quantize(x · (a / s) + b / s, 1, z), with constant a and b.

        %m = dl.mul %x, %a;  %y = dl.add %m, %b;  %q = dl.quantize %y, 0.5, %z
    →   %m = dl.mul %x, %a2;  %y = dl.add %m, %b2;  %q = dl.quantize %y, 1.0, %z

    So no division remains. The scale of a dequantized value is multiplied; a value without a constant factor is multiplied by
    1 / s. The order of roundings changes: a result may differ by one quantization step where it was near the midpoint of two.
    Requires constant positive scales; others stay.

        quantize(relu(x), s, z)  =  quantize(x, s, z), where z is the lowest value of the quantized type
    """

    name = "fold-quantization"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        constant = WeightExpressions()
        for block in program_blocks(op):
            rewrite_forward(block, _QuantizationFolder(constant).fold, QuantizeOp)


class _QuantizationFolder:
    def __init__(self, constant: WeightExpressions) -> None:
        self.constant = constant

    def fold(self, op: QuantizeOp) -> Sequence[SSAValue] | None:
        if _is_zero_lowest(op) and (x := _strip_relu(DlBuilder(op), op.x)) is not None:
            return [DlBuilder(op)(QuantizeOp, x, op.scale, op.zero_point, axis=op.axis, to=op.to)]
        if element_type_of(op.x) != f32 or rank_of(op.scale):
            return None
        scale = np.float32(splat(op.scale) or 0)
        factor = np.float32(1) / scale if scale > 0 else np.float32(np.inf)
        if scale == 1 or not np.isfinite(factor) or op.x in self.constant:
            return None
        build = DlBuilder(op)
        factor_value = build.scalar(float(factor), like=op.scale)
        x = self.multiply_factors(build, op.x, factor_value) if self.has_factors(op.x) else build(MulOp, op.x, factor_value)
        return [build(QuantizeOp, x, build.scalar(1.0, like=op.scale), op.zero_point, axis=op.axis, to=op.to)]

    def has_factors(self, value: SSAValue) -> bool:
        """Return whether all summands or extrema of `value` have a constant factor.

        The intermediates must have no other users.
        """
        op = value.owner
        if value in self.constant or (isinstance(op, DequantizeOp) and element_type_of(op.scale) == f32):
            return True
        if not value.has_one_use():
            return False
        match op:
            case MulOp():
                return any(v in self.constant for v in op.operands)
            case AddOp() | SubOp() | MaximumOp() | MinimumOp() | ReluOp() | ReshapeOp() | DataMovement():
                return all(map(self.has_factors, op.operands))
            case _:
                return False

    def multiply_factors(self, build: DlBuilder, value: SSAValue, factor_value: SSAValue) -> SSAValue:
        """Return `value · factor_value`, for a positive factor, by multiplying the constant factors of `value`."""
        op = value.owner
        assert isinstance(op, DlOp)
        with build.at_location(op.location):
            if value in self.constant:
                return build(MulOp, value, factor_value)
            if isinstance(op, DequantizeOp):
                return build(DequantizeOp, op.x, build(MulOp, op.scale, factor_value), op.zero_point, axis=op.axis)
            if isinstance(op, MulOp):
                constant_factor = next(v for v in op.operands if v in self.constant)
                return build(MulOp, *(build(MulOp, v, factor_value) if v is constant_factor else v for v in op.operands))
            return build(type(op), *(self.multiply_factors(build, v, factor_value) for v in op.operands), **op.properties)


def _is_zero_lowest(op: QuantizeOp) -> bool:
    """Return whether 0 quantizes to the lowest value of the quantized type."""
    quantized_type, scale = element_type_of(op.zero_point), splat(op.scale)
    return is_integer(quantized_type) and splat(op.zero_point) == limits(quantized_type)[0] and scale is not None and scale > 0


def _strip_relu(build: DlBuilder, value: SSAValue) -> SSAValue | None:
    """Return `x` of `relu(x)`, or of a maximum with a bound ≤ 0, also inside minima; None if there is none."""
    op = value.owner
    if isinstance(op, ReluOp):
        return op.operands[0]
    if not isinstance(op, MaximumOp | MinimumOp) or (limit := splat(op.operands[1])) is None:
        return None
    if isinstance(op, MaximumOp):
        return op.operands[0] if limit <= 0 else None
    x = _strip_relu(build, op.operands[0])
    return None if x is None else build(MinimumOp, x, op.operands[1])

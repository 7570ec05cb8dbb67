"""Fold quantization scales into the scales and factors of the quantized values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MaximumOp, MinimumOp, MulOp, ReluOp, SubOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.dtypes import is_integer
from dlc.dialects.dl.interfaces import DataMovement
from dlc.dialects.dl.low_precision.quantization import DequantizeOp, QuantizeOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.dl.scalar import limits
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, f32
from dlc.passes.dl.rewriting import defining_op, program_blocks, rewrite_forward, splat


@dataclass(frozen=True)
class FoldQuantizationPass(ModulePass):
    """`fold-quantization`: quantize(x · a + b, s, z)  =  quantize(x · (a / s) + (b / s + z), 1, 0), with constant a and b.

        %m = dl.mul %x, %a;  %y = dl.add %m, %b;  %q = dl.quantize %y, 0.5, 9
    →   %m = dl.mul %x, %a2;  %y = dl.add %m, %b2;  %q = dl.quantize %y, 1.0, 0

    So neither a division nor an addition after the rounding remains. The scale of a dequantized value is multiplied; a value
    without a constant factor is multiplied by 1 / s. A value without a constant summand keeps the zero point. The offset of the
    sums t of a contraction (`quantized-contractions`) becomes part of the constant summand:

        (cast(t - o) · a) + b  =  (cast(t) · a) + (b - o · a)

    The order of roundings changes: a result may differ by one quantization step where it was near the midpoint of two. Requires
    constant positive scales; others stay.

        quantize(min(x, c), s, z)  =  quantize(x, s, z), where c quantizes to the highest value; likewise max and relu
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
        if (x := _strip_clamps(DlBuilder(op), op, op.x)) is not None:
            return [DlBuilder(op)(QuantizeOp, x, op.scale, op.zero_point, axis=op.axis, to=op.to)]
        if element_type_of(op.x) != f32 or rank_of(op.scale):
            return None
        scale = np.float32(splat(op.scale) or 0)
        factor = np.float32(1) / scale if scale > 0 else np.float32(np.inf)
        if scale == 1 or not np.isfinite(factor) or op.x in self.constant:
            return None
        build, zero_point = DlBuilder(op), op.zero_point
        factor_value = build.scalar(float(factor), like=op.scale)
        if not self.has_factors(op.x):
            x = build(MulOp, op.x, factor_value)
        elif (zero := _integer_zero_point(op)) and self.has_constant_summand(op.x):
            x = self.multiply_add(build, op.x, factor_value, build.scalar(float(zero), like=op.scale))
            zero_point = build.scalar(0, like=op.zero_point)
        else:
            x = self.multiply_add(build, op.x, factor_value)
        return [build(QuantizeOp, x, build.scalar(1.0, like=op.scale), zero_point, axis=op.axis, to=op.to)]

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

    def has_constant_summand(self, value: SSAValue) -> bool:
        """Return whether `value`, which has factors, is a sum with a constant, or extrema of such sums."""
        match value.owner:
            case _ if value in self.constant:
                return True
            case AddOp() as op:
                return any(map(self.has_constant_summand, op.operands))
            case SubOp() as op:
                return self.has_constant_summand(op.x)
            case MaximumOp() | MinimumOp() | ReluOp() | ReshapeOp() | DataMovement() as op:
                return all(map(self.has_constant_summand, op.operands))
            case _:
                return False

    def multiply_add(self, build: DlBuilder, value: SSAValue, factor: SSAValue, offset: SSAValue | None = None) -> SSAValue:
        """Return `value · factor + offset`, for a positive factor, by changing the constant factors and summands of `value`."""
        op = value.owner
        assert isinstance(op, DlOp)
        with build.at_location(op.location):
            if value in self.constant:
                scaled = build(MulOp, value, factor)
                return scaled if offset is None else build(AddOp, scaled, offset)
            match op:
                case DequantizeOp():
                    return build(DequantizeOp, op.x, build(MulOp, op.scale, factor), op.zero_point, axis=op.axis)
                case MulOp():
                    constant_factor = next(v for v in op.operands if v in self.constant)
                    return build(MulOp, *(build(MulOp, v, factor) if v is constant_factor else v for v in op.operands))
                case ReluOp() if offset is not None:
                    return build(MaximumOp, self.multiply_add(build, op.x, factor, offset), offset)
                case AddOp() | SubOp():
                    operands = self.move_offset(build, op)
                    changed = next((v for v in operands if self.has_constant_summand(v)), None)
                    terms = (self.multiply_add(build, v, factor, offset if v is changed else None) for v in operands)
                    return build(type(op), *terms)
                case _:
                    terms = (self.multiply_add(build, v, factor, offset) for v in op.operands)
                    return build(type(op), *terms, **op.properties)

    def move_offset(self, build: DlBuilder, op: AddOp | SubOp) -> Sequence[SSAValue]:
        """Return the operands of `(t - o) · a + b` as `t · a` and `b - o · a`, for sums t; those of other ops unchanged."""
        summand = next((v for v in op.operands if v in self.constant), None)
        product = next((p for v in op.operands if (p := defining_op(v, MulOp)) is not None and v is not summand), None)
        factor = None if product is None else next((v for v in product.operands if v in self.constant), None)
        if not isinstance(op, AddOp) or summand is None or product is None or factor is None:
            return op.operands
        difference = next(v for v in product.operands if v is not factor)
        cast = defining_op(difference, CastOp)
        centered = defining_op(difference if cast is None else cast.x, SubOp)
        if (
            centered is None
            or centered.y not in self.constant
            or not all(v.has_one_use() for v in (difference, centered.result))
        ):
            return op.operands
        if cast is None and defining_op(centered.x, ConvOp) is None:
            return op.operands
        total, offset = (v if cast is None else build(CastOp, v, to=f32) for v in centered.operands)
        return build(MulOp, total, factor), build(SubOp, summand, build(MulOp, offset, factor))


def _integer_zero_point(op: QuantizeOp) -> int | None:
    """Return the zero point if it is a constant of an integer type and all its elements are equal; else None."""
    zero = splat(op.zero_point) if is_integer(element_type_of(op.zero_point)) else None
    return None if zero is None else int(zero)


def _strip_clamps(build: DlBuilder, op: QuantizeOp, value: SSAValue) -> SSAValue | None:
    """Return `x` of `min(x, c)`, `max(x, c)` or `relu(x)` if c quantizes to a limit of the type, also inside other clamps.

    None if there is none.
    """
    clamp, scale, zero = value.owner, splat(op.scale), _integer_zero_point(op)
    if not isinstance(clamp, MinimumOp | MaximumOp | ReluOp) or scale is None or not scale > 0 or zero is None:
        return None
    bound = 0 if isinstance(clamp, ReluOp) else splat(clamp.operands[1])
    if bound is None or math.isnan(bound):
        return None
    lowest, highest = limits(element_type_of(op.zero_point))
    level = float(np.rint(bound / scale)) + zero
    if level >= highest if isinstance(clamp, MinimumOp) else level <= lowest:
        return clamp.operands[0]
    x = _strip_clamps(build, op, clamp.operands[0])
    return None if x is None else build(type(clamp), x, *clamp.operands[1:])

"""Conversions between element types inside kernels, and division of integers."""

from __future__ import annotations

from dlc.dialects.dl import scalar
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.interfaces import is_unsigned, storage_type
from dlc.ir import Attribute, Operation, arith, f32, i32
from dlc.passes.kernel_values import KernelValue, select, with_element


def floor_divide(x: KernelValue, y: KernelValue) -> tuple[KernelValue, KernelValue]:
    """Return the quotient of integers, rounded down, and the remainder; 0 for a zero divisor.

    Processors trap for a zero divisor, and for the smallest integer divided by -1: the divisor is replaced there.
    """
    builder = x.builder
    by_zero = y.equals(0)
    if not x.signed:
        divisor = select(by_zero, 1, y)
        quotient = builder.op(arith.DivUIOp(x.ssa, divisor.ssa), signed=False)
        return select(by_zero, 0, quotient), select(by_zero, 0, x - quotient * y)
    by_minus_one = y.equals(-1)
    divisor = select(by_zero | by_minus_one, 1, y)
    truncated = builder.op(arith.DivSIOp(x.ssa, divisor.ssa))
    remainder = x - truncated * divisor
    rounds_up = remainder.differs(0) & ((remainder < 0) ^ (divisor < 0))
    quotient = select(rounds_up, truncated - 1, truncated)
    remainder = select(rounds_up, remainder + divisor, remainder)
    quotient = select(by_minus_one, x.like(0) - x, quotient)
    return select(by_zero, 0, quotient), select(by_zero, 0, remainder)


def convert(x: KernelValue, source: Attribute, target: Attribute) -> KernelValue:
    """Return the conversion between two element types, of which neither is an index and the target is not bool."""
    if storage_type(source) == storage_type(target):
        return x
    if is_float(source):
        return _resized_float(x, source, target) if is_float(target) else _saturated(x, source, target)
    if is_float(target):
        wide = scalar.wide_float(target)
        to_float = arith.UIToFPOp if is_unsigned(source) else arith.SIToFPOp
        return _resized_float(_typed(x, to_float, wide), wide, target)
    if scalar.bits(storage_type(target)) < scalar.bits(storage_type(source)):
        return _typed(x, arith.TruncIOp, storage_type(target))
    return _typed(x, arith.ExtUIOp if is_unsigned(source) else arith.ExtSIOp, storage_type(target))


def _typed(x: KernelValue, op: type[Operation], element: Attribute) -> KernelValue:
    """Apply a conversion op to a scalar or vector."""
    return x.builder.op(op.create(operands=[x.ssa], result_types=[with_element(x.type, element)]))


def _resized_float(x: KernelValue, source: Attribute, target: Attribute) -> KernelValue:
    if source == target:
        return x
    if scalar.bits(source) == scalar.bits(target):
        return _typed(_typed(x, arith.ExtFOp, f32), arith.TruncFOp, target)
    return _typed(x, arith.ExtFOp if scalar.bits(source) < scalar.bits(target) else arith.TruncFOp, target)


def _saturated(x: KernelValue, source: Attribute, target: Attribute) -> KernelValue:
    wide = scalar.wide_float(source)
    x = _resized_float(x, source, wide)
    if scalar.bits(target) >= 32:
        return _typed(x, arith.FPToUIOp if is_unsigned(target) else arith.FPToSIOp, storage_type(target))
    # Integers of 32 bits, which saturate, clamped to the limits of the target.
    integer = _typed(x, arith.FPToSIOp, i32)
    low, high = scalar.limits(target)
    integer = select(integer < low, low, integer)
    return _typed(select(integer > high, high, integer), arith.TruncIOp, storage_type(target))

"""Emitters of scalar code: constants, comparisons, minimum and maximum, conversions in `arith`.

Kernels compute on storage types, where integers are signless: functions that depend on the signedness take the `dl`
element type.
"""

from __future__ import annotations

from typing import Any, cast

from dlc.dialects.dl.dtypes import is_bool, is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Body, is_unsigned, storage_type
from dlc.ir import (
    Attribute,
    FastMathFlag,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    SSAValue,
    UnitAttr,
    arith,
    bf16,
    f16,
    f32,
    i32,
    i64,
    index,
    math,
    tensor,
)
from dlc.shapes.dims import Size

# Predicates of arith.cmpf, and of arith.cmpi for signed and unsigned integers; all but `ne` are false on NaN.
PREDICATES = {
    "eq": ("oeq", "eq", "eq"), "ne": ("une", "ne", "ne"),
    "lt": ("olt", "slt", "ult"), "le": ("ole", "sle", "ule"),
    "gt": ("ogt", "sgt", "ugt"), "ge": ("oge", "sge", "uge"),
}  # fmt: skip


# Attributes of `math.exp`: its operand is at most 0; an absolute error of the result is accurate enough; results outside of the
# normal range may be 0 or infinite. Also of `math.exp2`: subnormal results may be 0.
AT_MOST_ZERO, ABSOLUTE_ACCURACY, NORMAL_RANGE = "at_most_zero", "absolute_accuracy", "normal_range"
FLUSH_SUBNORMALS = "flush_subnormals"
# The widest integers that f32 represents exactly.
_F32_EXACT_INTEGER_BITS = 16


def constant(body: Body, value: int | float, type: Attribute) -> SSAValue:
    """Emit a constant of a storage type; integers wrap around."""
    if is_float(type):
        return body(arith.ConstantOp(FloatAttr(value, cast(Any, type))))
    if type == index:
        return body(arith.ConstantOp(IntegerAttr(int(value), index)))
    width = cast(IntegerType, type).width.data
    wrapped = int(value) % (1 << width)
    if width > 1 and wrapped >= 1 << (width - 1):
        wrapped -= 1 << width
    return body(arith.ConstantOp(IntegerAttr(wrapped, cast(IntegerType, type), truncate_bits=True)))


def constant_integer(value: SSAValue) -> int | None:
    """Return the value of a constant integer or index; None for other values."""
    owner = value.owner
    return owner.value.value.data if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr) else None


def like(body: Body, value: int | float, other: SSAValue) -> SSAValue:
    """Emit a constant of the type of `other`."""
    return constant(body, value, other.type)


def compare(body: Body, predicate: str, x: SSAValue, y: SSAValue, element_type: Attribute) -> SSAValue:
    """Emit the comparison `predicate` (eq, ne, lt, le, gt, ge) of `x` with `y`; NaN is unequal to everything."""
    on_floats, on_signed, on_unsigned = PREDICATES[predicate]
    if is_float(x.type):
        return body(arith.CmpfOp(x, y, on_floats))
    return body(arith.CmpiOp(x, y, on_unsigned if is_unsigned(element_type) else on_signed))


def compare_with(body: Body, predicate: str, x: SSAValue, value: int | float, element_type: Attribute) -> SSAValue:
    """Emit `compare` with a constant."""
    return compare(body, predicate, x, like(body, value, x), element_type)


def select(body: Body, condition: SSAValue, x: SSAValue, y: SSAValue) -> SSAValue:
    return body(arith.SelectOp(condition, x, y))


def bit_or(body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
    return body(arith.OrIOp(x, y))


def bit_and(body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
    return body(arith.AndIOp(x, y))


def bit_not(body: Body, x: SSAValue) -> SSAValue:
    return body(arith.XOrIOp(x, like(body, -1, x)))


def add(body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
    return body(arith.AddfOp(x, y) if is_float(x.type) else arith.AddiOp(x, y))


def subtract(body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
    return body(arith.SubfOp(x, y) if is_float(x.type) else arith.SubiOp(x, y))


def multiply(body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
    return body(arith.MulfOp(x, y) if is_float(x.type) else arith.MuliOp(x, y))


def multiply_add(body: Body, x: SSAValue, y: SSAValue, z: SSAValue) -> SSAValue:
    """Emit `x · y + z` of floats, a term of a sum of products; it may be contracted to one rounding (fma)."""
    contract = arith.FastMathFlagsAttr([FastMathFlag.ALLOW_CONTRACT])
    return body(arith.AddfOp(body(arith.MulfOp(x, y, flags=contract)), z, flags=contract))


def divide(body: Body, x: SSAValue, y: SSAValue, element_type: Attribute) -> SSAValue:
    """Emit the quotient; of integers truncated toward zero, 0 if `y` is 0, wrapped if the smallest is divided by -1.

    Processors trap in the last two cases, so the divisor is replaced there: no pass that follows has to guard the division.
    """
    if is_float(x.type):
        return body(arith.DivfOp(x, y))
    zero, one = like(body, 0, x), like(body, 1, x)
    by_zero = compare(body, "eq", y, zero, element_type)
    if is_unsigned(element_type):
        return select(body, by_zero, zero, body(arith.DivUIOp(x, select(body, by_zero, one, y))))
    by_minus_one = compare_with(body, "eq", y, -1, element_type)
    safe_divisor = select(body, bit_or(body, by_zero, by_minus_one), one, y)
    quotient = select(body, by_minus_one, subtract(body, zero, x), body(arith.DivSIOp(x, safe_divisor)))
    return select(body, by_zero, zero, quotient)


def maximum(body: Body, x: SSAValue, y: SSAValue, element_type: Attribute) -> SSAValue:
    """Emit the larger value; NaN if either is."""
    if is_float(x.type):
        return body(arith.MaximumfOp(x, y))
    if is_bool(x.type):
        return bit_or(body, x, y)
    return body(arith.MaxUIOp(x, y) if is_unsigned(element_type) else arith.MaxSIOp(x, y))


def minimum(body: Body, x: SSAValue, y: SSAValue, element_type: Attribute) -> SSAValue:
    """Emit the smaller value; NaN if either is."""
    if is_float(x.type):
        return body(arith.MinimumfOp(x, y))
    if is_bool(x.type):
        return bit_and(body, x, y)
    return body(arith.MinUIOp(x, y) if is_unsigned(element_type) else arith.MinSIOp(x, y))


def exp_at_most_zero(body: Body, x: SSAValue, *, absolute_accuracy: bool = False) -> SSAValue:
    """Emit `e^x` for `x ≤ 0` by a short formula; `absolute_accuracy` selects a shorter one with a larger relative error."""
    op = math.ExpOp(x)
    op.attributes |= dict.fromkeys([AT_MOST_ZERO, *([ABSOLUTE_ACCURACY] if absolute_accuracy else [])], UnitAttr())
    return body(op)


def exp_normal_range(body: Body, x: SSAValue) -> SSAValue:
    """Emit `e^x` by a formula whose result is 0 below the normal numbers, and infinite near the largest number."""
    op = math.ExpOp(x)
    op.attributes[NORMAL_RANGE] = UnitAttr()
    return body(op)


def limits(element_type: Attribute) -> tuple[int | float, int | float]:
    """Return the smallest and largest value of an element type; infinities for floats."""
    if is_float(element_type):
        return -float("inf"), float("inf")
    if is_bool(element_type):
        return 0, 1
    width = bits(element_type)
    return (0, (1 << width) - 1) if is_unsigned(element_type) else (-(1 << (width - 1)), (1 << (width - 1)) - 1)


def wide_float(element_type: Attribute) -> Attribute:
    """Return the type in which a float type is computed: f32 for 16-bit floats, else the type itself."""
    return f32 if element_type in (f16, bf16) else element_type


def convert(body: Body, x: SSAValue, source: Attribute, target: Attribute) -> SSAValue:
    """Emit the conversion of `x` from the `dl` element type `source` to `target`.

    Floats round to nearest even; floats to integers truncate and saturate, NaN to 0; integers to integers wrap around; every
    value but zero is true.
    """
    if storage_type(source) == storage_type(target):
        return x
    if is_bool(target):
        return compare_with(body, "ne", x, 0, source)
    if is_float(source):
        return _resize_float(body, x, target) if is_float(target) else saturate(body, x, target)
    if is_float(target):
        # 16-bit floats go through f32: few processors convert integers to them.
        wide = wide_float(target)
        converted = arith.UIToFPOp(x, cast(Any, wide)) if is_unsigned(source) else arith.SIToFPOp(x, cast(Any, wide))
        return _resize_float(body, body(converted), target)
    to, width = cast(IntegerType, storage_type(target)), cast(IntegerType, x.type).width.data
    if to.width.data < width:
        return body(arith.TruncIOp(x, to))
    return body(arith.ExtUIOp(x, to) if is_unsigned(source) else arith.ExtSIOp(x, to))


def bitcast(body: Body, x: SSAValue, target: Attribute) -> SSAValue:
    """Emit the bits of `x` as the `dl` element type `target` of the same width."""
    storage = storage_type(target)
    return x if x.type == storage else body(arith.BitcastOp(x, storage))


def bits(element_type: Attribute) -> int:
    """Return the number of bits of a value of an element type; 1 for bool."""
    if isinstance(element_type, IntegerType):
        return int(cast("IntegerType", element_type).width.data)
    return 8 * numpy_dtype(element_type).itemsize


def _resize_float(body: Body, x: SSAValue, target: Attribute) -> SSAValue:
    if x.type == target:
        return x
    if bits(x.type) < bits(target):
        return body(arith.ExtFOp(x, target))
    if bits(x.type) > bits(target):
        return body(arith.TruncFOp(x, target))
    return body(arith.TruncFOp(body(arith.ExtFOp(x, f32)), target))


def saturate(body: Body, x: SSAValue, target: Attribute) -> SSAValue:
    """Emit a float truncated to an integer within the limits of `target`; NaN becomes 0."""
    x = _resize_float(body, x, wide_float(x.type))
    if bits(target) <= _F32_EXACT_INTEGER_BITS:
        return _saturate_by_clamping(body, x, target)
    # These conversions saturate on every target.
    to = cast(Any, storage_type(target))
    return body(arith.FPToUIOp(x, to) if is_unsigned(target) else arith.FPToSIOp(x, to))


def _saturate_by_clamping(body: Body, x: SSAValue, target: Attribute) -> SSAValue:
    """Emit `saturate` to an integer type whose limits are exact floats: two comparisons, of which NaN fails the first.

    x = x > low ? x : low;  x = x < high ? x : high
    """
    low, high = (like(body, float(limit), x) for limit in limits(target))
    if not is_unsigned(target):
        x = select(body, compare(body, "eq", x, x, x.type), x, like(body, 0.0, x))
    x = select(body, compare(body, "gt", x, low, x.type), x, low)
    x = select(body, compare(body, "lt", x, high, x.type), x, high)
    return body(arith.TruncIOp(body(arith.FPToSIOp(x, i32)), cast(Any, storage_type(target))))


def as_index(body: Body, value: Size | SSAValue) -> SSAValue:
    """Emit a size as an `index`; a value that is computed already is returned."""
    if isinstance(value, SSAValue):
        return value
    return constant(body, value, index) if isinstance(value, int) else body.size(value)


def as_i64(body: Body, value: Size) -> SSAValue:
    """Emit a size as an i64."""
    return constant(body, value, i64) if isinstance(value, int) else body(arith.IndexCastOp(body.size(value), i64))


def wrap_and_clamp_index(
    body: Body, integer_index: SSAValue, size: Size, element_type: Attribute, *, in_bounds: bool = False
) -> SSAValue:
    """Emit an integer as an index on an axis of `size`: negative ones count from the end, the others are clamped to the axis.

    If only indices that are `in_bounds` matter, all others become the last index, which takes fewer ops. The axis must have an
    element unless its size is static.
    """
    if (checked_index := body.checked_index(integer_index, size)) is not None:
        return checked_index
    wide = convert(body, integer_index, element_type, i64)
    last = as_i64(body, max(size - 1, 0) if isinstance(size, int) else size - 1)
    if is_unsigned(element_type):
        clamped = body(arith.MinUIOp(wide, last))
    else:
        is_negative = compare_with(body, "lt", wide, 0, i64)
        wide = select(body, is_negative, add(body, wide, as_i64(body, size)), wide)
        # As an unsigned integer a negative index is beyond the end.
        clamp = (
            arith.MinUIOp(wide, last) if in_bounds else arith.MinSIOp(body(arith.MaxSIOp(wide, constant(body, 0, i64))), last)
        )
        clamped = body(clamp)
    return body(arith.IndexCastOp(clamped, index))


def extract(body: Body, source: SSAValue, indices: list[SSAValue]) -> SSAValue:
    """Emit the element of a tensor at these `index` values."""
    return body(tensor.ExtractOp(source, indices, cast(Any, source.type).element_type))

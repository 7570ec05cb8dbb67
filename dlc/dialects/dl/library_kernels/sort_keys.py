"""Order-preserving integer keys of elements, for sorting and comparing."""

from __future__ import annotations

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.arithmetic.conversion import BitcastOp
from dlc.dialects.dl.arithmetic.elementwise import SelectOp
from dlc.dialects.dl.arithmetic.functions import IsnanOp
from dlc.dialects.dl.arithmetic.logic import BitwiseAndOp, BitwiseNotOp, BitwiseXorOp, EqualOp, NotEqualOp, ShiftRightOp
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import is_bool, is_float
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.ir import Attribute, IntegerType, SSAValue, i8

# Note [Sorting integers]
#
# Every element is mapped to a key, a signed integer of its width: a float to its bits, with all but the sign flipped if the
# sign is set; NaN to the largest key. Sorting sorts keys and maps them back. Argsort sorts 64-bit integers with the key in the
# upper and the index in the lower half: equal elements keep their order, and a radix sort skips the digits of the indices,
# which are in order already. 64-bit keys are sorted by their lower half first, then by their upper half.


def to_sort_keys(build: DlBuilder, x: SSAValue, descending: bool = False) -> SSAValue:
    """Return signed integers in the order of the elements, or in the opposite order; -0 precedes 0."""
    element = element_type_of(x)
    if is_bool(element):
        keys = cast_to(build, x, i8)
    elif is_float(element):
        signed = IntegerType(scalar.bits(element))
        bits = build(BitcastOp, x, to=signed)
        keys = build(SelectOp, build(IsnanOp, x), build.scalar(scalar.limits(signed)[1], like=bits), _ordered_bits(build, bits))
    elif is_unsigned(element):
        signed = IntegerType(scalar.bits(element))
        bits = build(BitcastOp, x, to=signed)
        keys = build(BitwiseXorOp, bits, build.scalar(scalar.limits(signed)[0], like=bits))
    else:
        keys = x
    return build(BitwiseNotOp, keys) if descending else keys


def to_comparison_keys(build: DlBuilder, x: SSAValue, descending: bool = False) -> SSAValue:
    """Return `to_sort_keys` with equal keys for -0 and 0."""
    if is_float(element_type_of(x)):
        zero = build.scalar(0, like=x)
        x = build(SelectOp, build(EqualOp, x, zero), zero, x)
    return to_sort_keys(build, x, descending)


def from_sort_keys(build: DlBuilder, keys: SSAValue, element: Attribute, descending: bool) -> SSAValue:
    """Return the elements that have these keys."""
    keys = build(BitwiseNotOp, keys) if descending else keys
    if is_bool(element):
        return build(NotEqualOp, keys, build.scalar(0, like=keys))
    if is_float(element):
        # The largest key decodes to the bits of a NaN.
        return build(BitcastOp, _ordered_bits(build, keys), to=element)
    if is_unsigned(element):
        return build(
            BitcastOp, build(BitwiseXorOp, keys, build.scalar(scalar.limits(element_type_of(keys))[0], like=keys)), to=element
        )
    return keys


def _ordered_bits(build: DlBuilder, bits: SSAValue) -> SSAValue:
    """Convert the bits of floats to ordered integers, or back: flip all bits but the sign if the sign is set.

    y = x xor (x < 0 ? 0x7f…f : 0)
    """
    element = element_type_of(bits)
    sign = build(ShiftRightOp, bits, build.scalar(scalar.bits(element) - 1, like=bits))
    return build(BitwiseXorOp, bits, build(BitwiseAndOp, sign, build.scalar(scalar.limits(element)[1], like=bits)))

"""Order-preserving integer keys of elements, for sorting and comparing."""

from __future__ import annotations

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.activation import cast_to
from dlc.dialects.dl.arithmetic.conversion import BitcastOp
from dlc.dialects.dl.arithmetic.elementwise import SelectOp
from dlc.dialects.dl.arithmetic.functions import IsnanOp
from dlc.dialects.dl.arithmetic.logic import BitwiseAndOp, BitwiseNotOp, BitwiseXorOp, EqualOp, NotEqualOp, ShiftRightOp
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import is_bool, is_float
from dlc.dialects.dl.interfaces import is_unsigned
from dlc.ir import Attribute, IntegerType, SSAValue, i8

# Note [Sorting integers]
#
# Every element is mapped to a key, a signed integer of its width: a float to its bits, with all but the sign flipped if the
# sign is set; NaN to the largest key. Sorting sorts keys and maps them back. Argsort sorts 64-bit integers with the key in the
# upper and the index in the lower half: equal elements keep their order, and a radix sort skips the digits of the indices,
# which are in order already. 64-bit keys are sorted by their lower half first, then by their upper half.


def to_sort_keys(b: Build, x: SSAValue, descending: bool = False) -> SSAValue:
    """Return signed integers in the order of the elements, or in the opposite order; -0 precedes 0."""
    element = element_type_of(x)
    if is_bool(element):
        keys = cast_to(b, x, i8)
    elif is_float(element):
        signed = IntegerType(scalar.bits(element))
        bits = b(BitcastOp, x, to=signed)
        keys = b(SelectOp, b(IsnanOp, x), b.scalar(scalar.limits(signed)[1], like=bits), _ordered_bits(b, bits))
    elif is_unsigned(element):
        signed = IntegerType(scalar.bits(element))
        bits = b(BitcastOp, x, to=signed)
        keys = b(BitwiseXorOp, bits, b.scalar(scalar.limits(signed)[0], like=bits))
    else:
        keys = x
    return b(BitwiseNotOp, keys) if descending else keys


def to_comparison_keys(b: Build, x: SSAValue, descending: bool = False) -> SSAValue:
    """Return `to_sort_keys` with equal keys for -0 and 0."""
    if is_float(element_type_of(x)):
        zero = b.scalar(0, like=x)
        x = b(SelectOp, b(EqualOp, x, zero), zero, x)
    return to_sort_keys(b, x, descending)


def from_sort_keys(b: Build, keys: SSAValue, element: Attribute, descending: bool) -> SSAValue:
    """Return the elements that have these keys."""
    keys = b(BitwiseNotOp, keys) if descending else keys
    if is_bool(element):
        return b(NotEqualOp, keys, b.scalar(0, like=keys))
    if is_float(element):
        # The largest key decodes to the bits of a NaN.
        return b(BitcastOp, _ordered_bits(b, keys), to=element)
    if is_unsigned(element):
        return b(BitcastOp, b(BitwiseXorOp, keys, b.scalar(scalar.limits(element_type_of(keys))[0], like=keys)), to=element)
    return keys


def _ordered_bits(b: Build, bits: SSAValue) -> SSAValue:
    """Convert the bits of floats to ordered integers, or back: flip all bits but the sign if the sign is set.

    y = x xor (x < 0 ? 0x7f…f : 0)
    """
    element = element_type_of(bits)
    sign = b(ShiftRightOp, bits, b.scalar(scalar.bits(element) - 1, like=bits))
    return b(BitwiseXorOp, bits, b(BitwiseAndOp, sign, b.scalar(scalar.limits(element)[1], like=bits)))

"""Elements as integers in their order, by which they are sorted and compared."""

from __future__ import annotations

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.activation import casted
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
# Every element becomes a signed integer of its width, its key: of floats the bits, those behind the sign turned around where it
# is set, NaN the largest. Keys are sorted and become elements again. The order of elements is that of keys with the numbers
# of their places below them, in one integer of 64 bits: equal elements keep their order, and sorting by digits leaves out
# the places, which are in order as they stand. Keys of 64 bits are ordered by their lower half first, then by their upper.


def keys_of(b: Build, x: SSAValue, descending: bool = False) -> SSAValue:
    """Signed integers in the order of the elements, or the opposite; -0 comes before 0."""
    element = element_type_of(x)
    if is_bool(element):
        keys = casted(b, x, i8)
    elif is_float(element):
        signed = IntegerType(scalar.bits(element))
        bits = b(BitcastOp, x, to=signed)
        keys = b(SelectOp, b(IsnanOp, x), b.scalar(scalar.limits(signed)[1], like=bits), _turned(b, bits))
    elif is_unsigned(element):
        signed = IntegerType(scalar.bits(element))
        bits = b(BitcastOp, x, to=signed)
        keys = b(BitwiseXorOp, bits, b.scalar(scalar.limits(signed)[0], like=bits))
    else:
        keys = x
    return b(BitwiseNotOp, keys) if descending else keys


def keys_of_numbers(b: Build, x: SSAValue, descending: bool = False) -> SSAValue:
    """`keys_of`, the same for -0 and 0."""
    if is_float(element_type_of(x)):
        zero = b.scalar(0, like=x)
        x = b(SelectOp, b(EqualOp, x, zero), zero, x)
    return keys_of(b, x, descending)


def elements_of(b: Build, keys: SSAValue, element: Attribute, descending: bool) -> SSAValue:
    """The elements whose keys these are."""
    keys = b(BitwiseNotOp, keys) if descending else keys
    if is_bool(element):
        return b(NotEqualOp, keys, b.scalar(0, like=keys))
    if is_float(element):
        # The largest key is a NaN by its bits too.
        return b(BitcastOp, _turned(b, keys), to=element)
    if is_unsigned(element):
        return b(BitcastOp, b(BitwiseXorOp, keys, b.scalar(scalar.limits(element_type_of(keys))[0], like=keys)), to=element)
    return keys


def _turned(b: Build, bits: SSAValue) -> SSAValue:
    """Bits of floats as ordered integers, and back: those behind the sign turned around where it is set.

    y = x xor (x < 0 ? 0x7f…f : 0)
    """
    element = element_type_of(bits)
    sign = b(ShiftRightOp, bits, b.scalar(scalar.bits(element) - 1, like=bits))
    return b(BitwiseXorOp, bits, b(BitwiseAndOp, sign, b.scalar(scalar.limits(element)[1], like=bits)))

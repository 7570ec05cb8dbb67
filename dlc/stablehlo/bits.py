"""Bit operations: bitcasts, population count, leading zeros, high products, the next float, the total order of floats."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import DlOp, element_type_of
from dlc.dialects.dl.dtypes import element_type, is_bool, numpy_dtype
from dlc.ir import Attribute, SSAValue
from dlc.numpy.apply import convert
from dlc.stablehlo.node import Converter, StableHloNode, StableHloValue, sizes_of


def _unsigned(node: StableHloNode) -> tuple[SSAValue, int]:
    """Return the operand as an unsigned integer, and its width in bits."""
    width = 8 * numpy_dtype(element_type_of(node[0])).itemsize
    return node.build(dl.CastOp, node[0], to=_unsigned_type(width)), width


def bitcast(node: StableHloNode) -> SSAValue:
    """Reinterpret bits; the parts of a wider element are along the last axis, the lowest bits first."""
    x, element = node[0], node.element
    width, target_width = scalar.bits(element_type_of(x)), scalar.bits(element)
    if width == target_width:
        return _reinterpret(node, x, element)
    wide = _unsigned_type(max(width, target_width))
    offsets = node.build.constant(np.arange(0, scalar.bits(wide), min(width, target_width)).astype(numpy_dtype(wide)), wide)
    if width < target_width:
        x = node.build(dl.CastOp, x if is_bool(element_type_of(x)) else _reinterpret(node, x, _unsigned_type(width)), to=wide)
        last_axis = len(sizes_of(x)) - 1
        return _reinterpret(
            node, node.build(dl.ReduceSumOp, node.build(dl.ShiftLeftOp, x, offsets), axes=(last_axis,)), element
        )
    parts = node.build(dl.ShiftRightOp, node.reshape(_reinterpret(node, x, wide), (*sizes_of(x), 1)), offsets)
    if is_bool(element):
        return node.build(dl.CastOp, _with_constant(node, dl.BitwiseAndOp, parts, 1), to=element)
    return _reinterpret(node, node.build(dl.CastOp, parts, to=_unsigned_type(target_width)), element)


def _reinterpret(node: StableHloNode, x: SSAValue, element: Attribute) -> SSAValue:
    return x if element_type_of(x) == element else node.build(dl.BitcastOp, x, to=element)


def _unsigned_type(width: int) -> Attribute:
    return element_type(np.dtype(f"uint{width}"))


def high_product(node: StableHloNode) -> StableHloValue:
    """Return the high half of the product of integers, which has twice their width."""
    (a, b), kind = node.arrays, numpy_dtype(node.element).kind
    if a.dtype.itemsize < 8:
        wide = np.dtype(f"{kind}8")
        product = dnp.right_shift(dnp.multiply(convert(a, wide), convert(b, wide)), wide.type(8 * a.dtype.itemsize))
        return node.value(convert(product, a.dtype))
    # (a₁·2³² + a₀)·(b₁·2³² + b₀) = a₁·b₁·2⁶⁴ + (a₁·b₀ + a₀·b₁)·2³² + a₀·b₀. The bits of a negative number x
    # represent x + 2⁶⁴, by which the high half is too large by the other factor.
    (a1, a0), (b1, b0) = (_halves(convert(x, np.uint64)) for x in (a, b))
    carry, middle = _halves(a1 * b0 + _halves(a0 * b0)[0])
    high = a1 * b1 + carry + _halves(a0 * b1 + middle)[0]
    for x, other in ((a, b), (b, a)) if kind == "i" else ():
        high -= dnp.where(dnp.less(x, 0), convert(other, np.uint64), np.uint64(0))
    return node.value(convert(high, a.dtype))


def _halves(x: Any) -> tuple[Any, Any]:
    """Return the high and the low 32 bits of 64-bit integers."""
    return dnp.right_shift(x, np.uint64(32)), dnp.bitwise_and(x, np.uint64(0xFFFFFFFF))


def _with_constant(node: StableHloNode, op: type[DlOp], x: SSAValue, number: int) -> SSAValue:
    return node.build(op, x, node.scalar(number, x))


def _count_set_bits(node: StableHloNode, x: SSAValue, width: int) -> SSAValue:
    """Count the set bits: add up bit pairs, nibbles and bytes; a multiplication adds all bytes into the highest one."""
    all_ones = (1 << width) - 1
    pairs = _with_constant(node, dl.BitwiseAndOp, _with_constant(node, dl.ShiftRightOp, x, 1), all_ones // 3)
    x = node.build(dl.SubOp, x, pairs)
    nibbles = _with_constant(node, dl.BitwiseAndOp, _with_constant(node, dl.ShiftRightOp, x, 2), all_ones // 5)
    x = node.build(dl.AddOp, _with_constant(node, dl.BitwiseAndOp, x, all_ones // 5), nibbles)
    x = _with_constant(
        node, dl.BitwiseAndOp, node.build(dl.AddOp, x, _with_constant(node, dl.ShiftRightOp, x, 4)), all_ones // 17
    )
    return _with_constant(node, dl.ShiftRightOp, _with_constant(node, dl.MulOp, x, all_ones // 255), width - 8)


def population_count(node: StableHloNode) -> SSAValue:
    return node.build(dl.CastOp, _count_set_bits(node, *_unsigned(node)), to=node.element)


def count_leading_zeros(node: StableHloNode) -> SSAValue:
    """Set all bits below the highest set bit, and count the remaining zeros."""
    x, width = _unsigned(node)
    step = 1
    while step < width:
        x = node.build(dl.BitwiseOrOp, x, _with_constant(node, dl.ShiftRightOp, x, step))
        step *= 2
    num_ones = node.build(dl.CastOp, _count_set_bits(node, x, width), to=node.element)
    return node.build(dl.SubOp, node.scalar(width, num_ones), num_ones)


def next_after(node: StableHloNode) -> SSAValue:
    """Return the float next to the first operand in the direction of the second.

    Away from zero the bit pattern increases as an integer. Zero itself has two patterns; the first float after it is pattern 1.
    """
    a, b = node.operands
    bits = element_type(np.dtype(f"int{8 * numpy_dtype(node.element).itemsize}"))
    pattern, zero = node.build(dl.BitcastOp, a, to=bits), node.scalar(0, a)
    is_upward = node.build(dl.GreaterOp, b, a)
    is_away_from_zero = node.build(dl.EqualOp, is_upward, node.build(dl.GreaterOp, a, zero))
    result = node.build(
        dl.AddOp, pattern, node.build(dl.SelectOp, is_away_from_zero, node.scalar(1, pattern), node.scalar(-1, pattern))
    )
    result = node.build(dl.BitcastOp, result, to=node.element)
    smallest = node.build(dl.BitcastOp, node.scalar(1, pattern), to=node.element)
    smallest = node.build(dl.SelectOp, is_upward, smallest, node.build(dl.NegOp, smallest))
    result = node.build(dl.SelectOp, node.build(dl.EqualOp, a, zero), smallest, result)
    is_nan = node.build(dl.OrOp, node.build(dl.IsnanOp, a), node.build(dl.IsnanOp, b))
    result = node.build(dl.SelectOp, is_nan, node.build(dl.AddOp, a, b), result)
    return node.build(dl.SelectOp, node.build(dl.EqualOp, a, b), b, result)


def total_order_key(node: StableHloNode, x: SSAValue) -> SSAValue:
    """Return signed integers in the total order of floats: -NaN, -∞, …, -0, +0, …, ∞, NaN. The same float has the same key."""
    bits = element_type(np.dtype(f"int{8 * numpy_dtype(element_type_of(x)).itemsize}"))
    pattern = node.build(dl.BitcastOp, x, to=bits)
    largest = int(np.iinfo(numpy_dtype(bits)).max)
    is_negative = node.build(dl.LessOp, pattern, node.scalar(0, pattern))
    return node.build(dl.SelectOp, is_negative, _with_constant(node, dl.BitwiseXorOp, pattern, largest), pattern)


OPERATORS: dict[str, Converter] = {
    "stablehlo.bitcast_convert": bitcast,
    "chlo.mulhi": high_product,
    "stablehlo.popcnt": population_count,
    "stablehlo.count_leading_zeros": count_leading_zeros,
    "chlo.next_after": next_after,
}

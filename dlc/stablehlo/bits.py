"""Ops on the bits of numbers: how many are set, how many lead, the next float."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.ir import SSAValue
from dlc.stablehlo.node import Converter, Node


def _unsigned(node: Node) -> tuple[SSAValue, int]:
    """The operand as an unsigned integer, and its width."""
    width = 8 * numpy_dtype(element_type_of(node[0])).itemsize
    return node.b(dl.CastOp, node[0], to=element_type(np.dtype(f"uint{width}"))), width


def _with(node: Node, op: type[DlOp], x: SSAValue, number: int) -> SSAValue:
    return node.b(op, x, node.scalar(number, x))


def _set(node: Node, x: SSAValue, width: int) -> SSAValue:
    """How many bits are set: sums of pairs, of fours, of bytes side by side, and of all bytes in the highest one."""
    every = (1 << width) - 1
    pairs = _with(node, dl.BitwiseAndOp, _with(node, dl.ShiftRightOp, x, 1), every // 3)
    x = node.b(dl.SubOp, x, pairs)
    fours = _with(node, dl.BitwiseAndOp, _with(node, dl.ShiftRightOp, x, 2), every // 5)
    x = node.b(dl.AddOp, _with(node, dl.BitwiseAndOp, x, every // 5), fours)
    x = _with(node, dl.BitwiseAndOp, node.b(dl.AddOp, x, _with(node, dl.ShiftRightOp, x, 4)), every // 17)
    return _with(node, dl.ShiftRightOp, _with(node, dl.MulOp, x, every // 255), width - 8)


def population_count(node: Node) -> SSAValue:
    return node.b(dl.CastOp, _set(node, *_unsigned(node)), to=node.element)


def count_leading_zeros(node: Node) -> SSAValue:
    """Of what has all bits below its highest set, those that are not."""
    x, width = _unsigned(node)
    step = 1
    while step < width:
        x = node.b(dl.BitwiseOrOp, x, _with(node, dl.ShiftRightOp, x, step))
        step *= 2
    found = node.b(dl.CastOp, _set(node, x, width), to=node.element)
    return node.b(dl.SubOp, node.scalar(width, found), found)


def next_after(node: Node) -> SSAValue:
    """The float beside the first operand on the way to the second.

    Away from zero the bits count up, as an integer. Zero itself has two patterns; the first float after it is 1.
    """
    a, b = node.operands
    bits = element_type(np.dtype(f"int{8 * numpy_dtype(node.element).itemsize}"))
    place, zero = node.b(dl.BitcastOp, a, to=bits), node.scalar(0, a)
    up = node.b(dl.GreaterOp, b, a)
    outward = node.b(dl.EqualOp, up, node.b(dl.GreaterOp, a, zero))
    moved = node.b(dl.AddOp, place, node.b(dl.SelectOp, outward, node.scalar(1, place), node.scalar(-1, place)))
    moved = node.b(dl.BitcastOp, moved, to=node.element)
    first = node.b(dl.BitcastOp, node.scalar(1, place), to=node.element)
    first = node.b(dl.SelectOp, up, first, node.b(dl.NegOp, first))
    moved = node.b(dl.SelectOp, node.b(dl.EqualOp, a, zero), first, moved)
    unordered = node.b(dl.OrOp, node.b(dl.IsnanOp, a), node.b(dl.IsnanOp, b))
    moved = node.b(dl.SelectOp, unordered, node.b(dl.AddOp, a, b), moved)
    return node.b(dl.SelectOp, node.b(dl.EqualOp, a, b), b, moved)


OPERATORS: dict[str, Converter] = {
    "stablehlo.popcnt": population_count,
    "stablehlo.count_leading_zeros": count_leading_zeros,
    "chlo.next_after": next_after,
}

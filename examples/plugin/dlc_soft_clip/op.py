"""The op `example.soft_clip` and its partial derivatives."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc.extend.ops import Array, Binary, Body, SSAValue, irdl_op_definition, scalar
from dlc.extend.rules import Term, sign


@irdl_op_definition
class SoftClipOp(Binary):
    """`x / (1 + |x| / y)`, which is between `-y` and `y`, for a limit `y` above 0.

    (C1) the operands are floats of one type; (C2) their shapes broadcast. NaN and ±inf give NaN.
    """

    name = "example.soft_clip"
    KINDS: ClassVar[tuple[str, ...]] = ("float",)

    def numpy(self, x: Array, y: Array) -> Array:
        return x / (1 + np.abs(x) / y)

    def emit(self, body: Body, x: SSAValue, y: SSAValue) -> SSAValue:
        negative = scalar.subtract(body, scalar.like(body, 0, x), x)
        magnitude = scalar.maximum(body, x, negative, self.element)
        divisor = scalar.add(body, scalar.like(body, 1, x), scalar.divide(body, magnitude, y, self.element))
        return scalar.divide(body, x, divisor, self.element)


def _inverse_divisor(x: Term, y: Term) -> Term:
    """1 / (1 + |x| / y)"""
    return 1 / (x * sign(x) / y + 1)


def slope_by_x(r: Term, x: Term, y: Term) -> Term:
    """∂r/∂x = 1 / (1 + |x| / y)²"""
    inverse = _inverse_divisor(x, y)
    return inverse * inverse


def slope_by_limit(r: Term, x: Term, y: Term) -> Term:
    """∂r/∂y = r · |x| / y² / (1 + |x| / y)"""
    return r * (x * sign(x)) / (y * y) * _inverse_divisor(x, y)

"""Derivative and batching rules of plug-ins.

A partial derivative takes the result and the operands as `Term`s and returns ∂r/∂x: a term, a number, or a condition. A jvp
rule takes (op, result, operands, tangents), a transpose rule (op, cotangent, operand index). A batching rule takes
(context, op) and returns the results with the batch along axis 0, or None to batch the decomposition.
"""

from __future__ import annotations

from dlc.passes.autodiff.term import (
    Number,
    Term,
    cos,
    cosh,
    erf,
    exp,
    floor,
    log,
    rsqrt,
    sign,
    sin,
    sinh,
    sqrt,
    tanh,
    trunc,
    where,
)
from dlc.passes.batching.batching_context import BatchingContext
from dlc.passes.batching.rules import elementwise, merge_rows, rows, shift_axes, shift_axes_of_first_operand

__all__ = [
    "BatchingContext",
    "Number",
    "Term",
    "cos",
    "cosh",
    "elementwise",
    "erf",
    "exp",
    "floor",
    "log",
    "merge_rows",
    "rows",
    "rsqrt",
    "shift_axes",
    "shift_axes_of_first_operand",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tanh",
    "trunc",
    "where",
]

"""Recognize JAX's floor division and modulo of integers, which use truncating division, as one op.

    select(and(ne(sign a, sign b), ne(a rem b, 0)), a / b - 1, a / b)      ⟶   dl.floordiv a, b
    select(and(ne(a rem b < 0, b < 0), ne(a rem b, 0)), a rem b + b, a rem b)   ⟶   a - b · dl.floordiv a, b

Only divisors that are static or symbolic sizes are recognized, as in window sizes and the shifts of `jnp.roll`.
"""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.dtypes import is_integer
from dlc.frontend.shape_tensors import ComputedElement, shape_tensor_elements
from dlc.ir import Block, Operation, SSAValue
from dlc.stablehlo.node import StableHloNode


def match_floor_division(node: StableHloNode) -> SSAValue | None:
    """Return the floor quotient or modulo of rank-0 integers that a select computes; None for another select."""
    condition, then, otherwise = node.operands
    owner = otherwise.owner
    if shape_of(otherwise) or not is_integer(element_type_of(otherwise)) or not isinstance(owner, dl.DivOp | dl.ModOp):
        return None
    a, b = owner.operands
    divisor = _strip_zero_guard(b)
    if isinstance(shape_tensor_elements(divisor).item(), ComputedElement):
        return None
    quotient = node.build(dl.FloordivOp, a, divisor)
    if isinstance(owner, dl.DivOp):
        return quotient if _is_less_by_one(then, otherwise) and _is_quotient_condition(condition, a, b) else None
    if not _is_op_on(then, dl.AddOp, otherwise, b) or not _is_remainder_condition(condition, otherwise, b):
        return None
    return node.build(dl.SubOp, a, node.build(dl.MulOp, quotient, divisor))


def _strip_zero_guard(value: SSAValue) -> SSAValue:
    """Return the size from `select(size == 0, 1, size)`; other values unchanged."""
    op = value.owner
    if not isinstance(op, dl.SelectOp) or not _is_number(op.operands[1], 1):
        return value
    size = op.operands[2]
    return size if _compares(op.operands[0], dl.EqualOp, size, 0) else value


def _is_quotient_condition(condition: SSAValue, a: SSAValue, b: SSAValue) -> bool:
    """Return whether a condition is: the signs of both operands differ and the remainder is not 0."""
    signs, nonzero_test = _and_operands(condition)
    if not isinstance(signs, dl.NotEqualOp) or not isinstance(nonzero_test, dl.NotEqualOp):
        return False
    remainder = nonzero_test.operands[0]
    return (
        all(_is_op_on(sign, dl.SignOp, operand) for sign, operand in zip(signs.operands, (a, b), strict=True))
        and _is_op_on(remainder, dl.ModOp, a, b)
        and _compares(nonzero_test.results[0], dl.NotEqualOp, remainder, 0)
    )


def _is_remainder_condition(condition: SSAValue, remainder: SSAValue, b: SSAValue) -> bool:
    """Return whether a condition is: the remainder is not 0 and its sign differs from that of the divisor."""
    signs, nonzero_test = _and_operands(condition)
    if not isinstance(signs, dl.NotEqualOp) or not isinstance(nonzero_test, dl.NotEqualOp):
        return False
    have_sign_tests = all(
        _compares(sign, dl.LessOp, operand, 0) for sign, operand in zip(signs.operands, (remainder, b), strict=True)
    )
    return have_sign_tests and _compares(nonzero_test.results[0], dl.NotEqualOp, remainder, 0)


def _and_operands(condition: SSAValue) -> tuple[Operation | Block | None, Operation | Block | None]:
    op = condition.owner
    if not isinstance(op, dl.AndOp):
        return None, None
    first, second = op.operands
    return first.owner, second.owner


def _is_less_by_one(value: SSAValue, other: SSAValue) -> bool:
    op = value.owner
    return isinstance(op, dl.SubOp) and op.operands[0] == other and _is_number(op.operands[1], 1)


def _compares(value: SSAValue, op: type[DlOp], operand: SSAValue, number: int) -> bool:
    owner = value.owner
    return isinstance(owner, op) and owner.operands[0] == operand and _is_number(owner.operands[1], number)


def _is_op_on(value: SSAValue, op: type[DlOp], *operands: SSAValue) -> bool:
    owner = value.owner
    return isinstance(owner, op) and tuple(owner.operands) == operands


def _is_number(value: SSAValue, number: int) -> bool:
    return not shape_of(value) and shape_tensor_elements(value).item() == number

"""`//` and `%` of integers that round down, which JAX writes with divisions that truncate, as one op.

    select(and(ne(sign a, sign b), ne(a rem b, 0)), a / b - 1, a / b)      ⟶   dl.floordiv a, b
    select(and(ne(a rem b < 0, b < 0), ne(a rem b, 0)), a rem b + b, a rem b)   ⟶   a - b · dl.floordiv a, b

Of divisors that are known, or a size: such are the sizes of windows and what `jnp.roll` moves by.
"""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.dtypes import is_integer
from dlc.frontend.decided import Element, elements_of
from dlc.ir import Block, Operation, SSAValue
from dlc.stablehlo.node import Node


def division(node: Node) -> SSAValue | None:
    """What a selection is, if it is such a quotient or remainder of numbers without axes."""
    condition, then, otherwise = node.operands
    made = otherwise.owner
    if shape_of(otherwise) or not is_integer(element_type_of(otherwise)) or not isinstance(made, dl.DivOp | dl.ModOp):
        return None
    a, b = made.operands
    divisor = _not_zero(b)
    if isinstance(elements_of(divisor).item(), Element):
        return None
    quotient = node.b(dl.FloordivOp, a, divisor)
    if isinstance(made, dl.DivOp):
        return quotient if _is_less_by_one(then, otherwise) and _has_rest(condition, a, b) else None
    if not _is(then, dl.AddOp, otherwise, b) or not _has_other_sign(condition, otherwise, b):
        return None
    return node.b(dl.SubOp, a, node.b(dl.MulOp, quotient, divisor))


def _not_zero(value: SSAValue) -> SSAValue:
    """A size that would be 1 where it is 0."""
    op = value.owner
    if not isinstance(op, dl.SelectOp) or not _is_number(op.operands[1], 1):
        return value
    size = op.operands[2]
    return size if _compares(op.operands[0], dl.EqualOp, size, 0) else value


def _has_rest(condition: SSAValue, a: SSAValue, b: SSAValue) -> bool:
    """Whether it says that the signs of both differ, and that something is left of the division."""
    signs, left = _both(condition)
    if not isinstance(signs, dl.NotEqualOp) or not isinstance(left, dl.NotEqualOp):
        return False
    rest = left.operands[0]
    return (
        all(_is(sign, dl.SignOp, of) for sign, of in zip(signs.operands, (a, b), strict=True))
        and _is(rest, dl.ModOp, a, b)
        and _compares(left.results[0], dl.NotEqualOp, rest, 0)
    )


def _has_other_sign(condition: SSAValue, rest: SSAValue, b: SSAValue) -> bool:
    """Whether it says that a rest is not 0, and its sign not that of the divisor."""
    signs, left = _both(condition)
    if not isinstance(signs, dl.NotEqualOp) or not isinstance(left, dl.NotEqualOp):
        return False
    negative = all(_compares(sign, dl.LessOp, of, 0) for sign, of in zip(signs.operands, (rest, b), strict=True))
    return negative and _compares(left.results[0], dl.NotEqualOp, rest, 0)


def _both(condition: SSAValue) -> tuple[Operation | Block | None, Operation | Block | None]:
    op = condition.owner
    if not isinstance(op, dl.AndOp):
        return None, None
    first, second = op.operands
    return first.owner, second.owner


def _is_less_by_one(value: SSAValue, than: SSAValue) -> bool:
    op = value.owner
    return isinstance(op, dl.SubOp) and op.operands[0] == than and _is_number(op.operands[1], 1)


def _compares(value: SSAValue, op: type[DlOp], with_: SSAValue, number: int) -> bool:
    made = value.owner
    return isinstance(made, op) and made.operands[0] == with_ and _is_number(made.operands[1], number)


def _is(value: SSAValue, op: type[DlOp], *operands: SSAValue) -> bool:
    made = value.owner
    return isinstance(made, op) and tuple(made.operands) == operands


def _is_number(value: SSAValue, number: int) -> bool:
    return not shape_of(value) and elements_of(value).item() == number

"""Prove that masked positions get zero softmax weight, so that their products can be skipped."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import cast

from dlc.ir import Block, FloatAttr, SSAValue, arith, linalg, math
from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.loop_nests import NestOp, combiner_of, masked_select_of

# Facts about a buffer: all its masked elements are -∞ or 0, or it has the maximum of each row.
_LOWEST, _ZERO, _MAXIMUM = "-∞", "0", "the maximum of the row"


def has_zero_masked_weights(nest_ops: Sequence[NestOp], sums: NestOp, lane: int) -> bool:
    """Return whether the elements that the first op masks may be skipped along `lane`.

    The masked value must be -∞, which a row maximum ignores. Its exponential, after subtraction of the maximum, is 0,
    which changes no sum; `sums` is the contraction that multiplies by these softmax weights. If the maximum is -∞ or NaN, every
    exponential of the row is NaN, so the sums are NaN even if most elements are skipped.
    """
    masked_select = masked_select_of(nest_ops[0])
    if masked_select is None or constant_value(masked_select.masked_value) != -inf:
        return False
    facts = {nest_ops[0].output.root: _LOWEST}

    def fact(a: AffineAccess | None) -> str | None:
        known_fact = None if a is None else facts.get(a.root)
        return known_fact if a is not None and a.uses(lane) != (known_fact == _MAXIMUM) else None

    for nest_op in nest_ops[1:]:
        if isinstance(nest_op.op, linalg.FillOp) or lane not in nest_op.dims:
            facts.pop(nest_op.output.root, None)
            continue
        operand_facts = list(map(fact, nest_op.accesses[:-1]))
        if lane in nest_op.reductions:
            neutral_combiner = {_LOWEST: arith.MaximumfOp, _ZERO: arith.AddfOp}.get(operand_facts[0] or "")
            if (
                len(operand_facts) != 1
                or neutral_combiner is None
                or not isinstance(combiner_of(nest_op), neutral_combiner)
                or _num_ops(nest_op) != 2
            ):
                return False
            if operand_facts[0] == _LOWEST:
                facts[nest_op.output.root] = _MAXIMUM
        elif (result_fact := _propagate(nest_op.op.regions[0].block, operand_facts)) is not None:
            facts[nest_op.output.root] = result_fact
        else:
            return False
    return any(fact(a) == _ZERO for a in sums.accesses[:-1])


def _num_ops(nest_op: NestOp) -> int:
    """Return the number of ops in the body of a structured op."""
    return len(nest_op.op.regions[0].block.ops)


def constant_value(value: SSAValue) -> float | None:
    """Return the value of a constant scalar, else None."""
    owner = value.owner
    return cast("FloatAttr", owner.value).value.data if isinstance(owner, arith.ConstantOp) else None


def _propagate(body: Block, operand_facts: Sequence[str | None]) -> str | None:
    """Return the fact about the result of a body, given the facts about its operands."""
    facts: dict[SSAValue, str | None] = dict(zip(body.args, operand_facts, strict=False))
    for op in body.ops:
        if isinstance(op, linalg.YieldOp):
            return facts.get(op.operands[0])
        match op, [facts.get(v) for v in op.operands]:
            case arith.SubfOp(), [value_fact, maximum_fact] if (value_fact, maximum_fact) == (_LOWEST, _MAXIMUM):
                facts[op.results[0]] = _LOWEST
            case ((math.ExpOp() | math.Exp2Op()), [value_fact]) if value_fact == _LOWEST:
                facts[op.results[0]] = _ZERO
            case _:
                return None
    return None

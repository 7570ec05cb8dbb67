"""Prove that masked positions get zero softmax weight, so that their products can be skipped."""

from __future__ import annotations

import math as numbers
from collections.abc import Sequence
from typing import cast

from dlc.ir import Block, FloatAttr, SSAValue, arith, linalg, math
from dlc.passes.tiling.affine_access import AffineAccess
from dlc.passes.tiling.loop_nests import NestStage, combiner_of, masked_select_of

# Facts about masked elements, and about a value of which each row has one.
_LOWEST, _ZERO, _MAXIMUM = "-∞", "0", "the maximum of the row"


def has_zero_masked_weights(stages: Sequence[NestStage], sums: NestStage, lane: int) -> bool:
    """Return whether the elements that the first stage masks may be skipped along `lane`.

    The masked value must be -∞. A row maximum ignores such elements, and the exponential of one, minus the maximum of
    its row, is 0, which changes no sum. The last elementwise stage makes the weights that `sums` multiplies by. If the
    maximum is -∞ or NaN, all exponentials of the row are NaN, and a single one is enough to make its sums NaN.
    """
    choice = masked_select_of(stages[0])
    if choice is None or constant_value(choice.otherwise) != -numbers.inf:
        return False
    facts = {stages[0].output.root: _LOWEST}

    def fact(a: AffineAccess | None) -> str | None:
        fact_ = None if a is None else facts.get(a.root)
        return fact_ if a is not None and a.uses(lane) != (fact_ == _MAXIMUM) else None

    for stage in stages[1:]:
        if isinstance(stage.op, linalg.FillOp) or lane not in stage.dims:
            facts.pop(stage.output.root, None)
            continue
        operand_facts = list(map(fact, stage.accesses[:-1]))
        if lane in stage.reductions:
            neutral = {_LOWEST: arith.MaximumfOp, _ZERO: arith.AddfOp}.get(operand_facts[0] or "")
            if (
                len(operand_facts) != 1
                or neutral is None
                or not isinstance(combiner_of(stage), neutral)
                or _num_ops(stage) != 2
            ):
                return False
            if operand_facts[0] == _LOWEST:
                facts[stage.output.root] = _MAXIMUM
        elif (result_fact := _propagate(stage.op.regions[0].block, operand_facts)) is not None:
            facts[stage.output.root] = result_fact
        else:
            return False
    return any(fact(a) == _ZERO for a in sums.accesses[:-1])


def _num_ops(stage: NestStage) -> int:
    return len(stage.op.regions[0].block.ops)


def constant_value(value: SSAValue) -> float | None:
    """Return the value of a constant scalar, else None."""
    owner = value.owner
    return cast("FloatAttr", owner.value).value.data if isinstance(owner, arith.ConstantOp) else None


def _propagate(body: Block, read: Sequence[str | None]) -> str | None:
    """Return the fact about the result of a body, given the facts about its operands."""
    facts: dict[SSAValue, str | None] = dict(zip(body.args, read, strict=False))
    for op in body.ops:
        if isinstance(op, linalg.YieldOp):
            return facts.get(op.operands[0])
        match op, [facts.get(v) for v in op.operands]:
            case arith.SubfOp(), [k, of] if (k, of) == (_LOWEST, _MAXIMUM):
                facts[op.results[0]] = _LOWEST
            case ((math.ExpOp() | math.Exp2Op()), [k]) if k == _LOWEST:
                facts[op.results[0]] = _ZERO
            case _:
                return None
    return None

"""What a mask hides: that it weighs nothing is seen from the stages that make weights of scores."""

from __future__ import annotations

import math as numbers
from collections.abc import Sequence
from typing import cast

from dlc.ir import Block, FloatAttr, SSAValue, arith, linalg, math
from dlc.passes.tiling.nests import Stage, choice_of, combiner_of

# What is known of the elements that are hidden; and of a number that a row has one of.
_LOWEST, _ZERO, _OF_ROW = "-∞", "0", "one of a row"


def weighs_nothing(stages: Sequence[Stage], sums: Stage, lane: int) -> bool:
    """Whether what the first stage chooses a number for changes nothing where it is left out along `lane`.

    That number is -∞; a maximum over such elements is that of the others, and the exponential of one, less a number of its row,
    is 0, which no sum contains. The last of the elementwise stages makes what `sums` multiplies by. Rows of which all is hidden
    have no number either way: the exponential of -∞ less -∞, or 0 divided by 0.
    """
    choice = choice_of(stages[0])
    if choice is None or _number(choice[1]) != -numbers.inf:
        return False
    known = {stages[0].output.root: _LOWEST}
    for stage in stages[1:]:
        if isinstance(stage.op, linalg.FillOp) or lane not in stage.dims:
            continue
        read = [known.get(a.root) if a.uses(lane) else _OF_ROW for a in stage.inputs]
        if lane in stage.reductions:
            neutral = {_LOWEST: arith.MaximumfOp, _ZERO: arith.AddfOp}.get(read[0] or "")
            if len(read) != 1 or neutral is None or not isinstance(combiner_of(stage), neutral) or _length(stage) != 2:
                return False
        elif (made := _made(stage.op.regions[0].block, read)) is not None:
            known[stage.output.root] = made
        else:
            return False
    return any(a is not None and known.get(a.root) == _ZERO for a in sums.accesses[:-1])


def _length(stage: Stage) -> int:
    return len(stage.op.regions[0].block.ops)


def _number(value: SSAValue) -> float | None:
    owner = value.owner
    return cast("FloatAttr", owner.value).value.data if isinstance(owner, arith.ConstantOp) else None


def _made(body: Block, read: Sequence[str | None]) -> str | None:
    """What a body makes of elements of which so much is known."""
    known: dict[SSAValue, str | None] = dict(zip(body.args, read, strict=False))
    for op in body.ops:
        if isinstance(op, linalg.YieldOp):
            return known.get(op.operands[0])
        match op, [known.get(v) for v in op.operands]:
            case arith.SubfOp(), [k, of] if (k, of) == (_LOWEST, _OF_ROW):
                known[op.results[0]] = _LOWEST
            case ((math.ExpOp() | math.Exp2Op()), [k]) if k == _LOWEST:
                known[op.results[0]] = _ZERO
            case _:
                return None
    return None

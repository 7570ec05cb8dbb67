"""What a mask hides: that it weighs nothing is seen from the stages that make weights of scores."""

from __future__ import annotations

import math as numbers
from collections.abc import Sequence
from typing import cast

from dlc.ir import Block, FloatAttr, SSAValue, arith, linalg, math
from dlc.passes.tiling.access import Access
from dlc.passes.tiling.nests import Stage, choice_of, combiner_of

# What is known of the elements that are hidden; and of a number that a row has one of.
_LOWEST, _ZERO, _MAXIMUM = "-∞", "0", "the maximum of the row"


def weighs_nothing(stages: Sequence[Stage], sums: Stage, lane: int) -> bool:
    """Whether what the first stage chooses a number for changes nothing where some of it is left out along `lane`.

    That number is -∞. A maximum over such elements is that of the others, and the exponential of one, less the maximum of its
    row, is 0, which no sum contains. The last of the elementwise stages makes what `sums` multiplies by. Where that maximum is
    -∞ or no number, all exponentials of the row are no numbers, and one of them is enough for its sums to be none either.
    """
    choice = choice_of(stages[0])
    if choice is None or number_of(choice.otherwise) != -numbers.inf:
        return False
    known = {stages[0].output.root: _LOWEST}

    def fact(a: Access | None) -> str | None:
        found = None if a is None else known.get(a.root)
        return found if a is not None and a.uses(lane) != (found == _MAXIMUM) else None

    for stage in stages[1:]:
        if isinstance(stage.op, linalg.FillOp) or lane not in stage.dims:
            known.pop(stage.output.root, None)
            continue
        read = list(map(fact, stage.accesses[:-1]))
        if lane in stage.reductions:
            neutral = {_LOWEST: arith.MaximumfOp, _ZERO: arith.AddfOp}.get(read[0] or "")
            if len(read) != 1 or neutral is None or not isinstance(combiner_of(stage), neutral) or _length(stage) != 2:
                return False
            if read[0] == _LOWEST:
                known[stage.output.root] = _MAXIMUM
        elif (made := _made(stage.op.regions[0].block, read)) is not None:
            known[stage.output.root] = made
        else:
            return False
    return any(fact(a) == _ZERO for a in sums.accesses[:-1])


def _length(stage: Stage) -> int:
    return len(stage.op.regions[0].block.ops)


def number_of(value: SSAValue) -> float | None:
    """The number that a scalar is, if it is a constant."""
    owner = value.owner
    return cast("FloatAttr", owner.value).value.data if isinstance(owner, arith.ConstantOp) else None


def _made(body: Block, read: Sequence[str | None]) -> str | None:
    """What a body makes of elements of which so much is known."""
    known: dict[SSAValue, str | None] = dict(zip(body.args, read, strict=False))
    for op in body.ops:
        if isinstance(op, linalg.YieldOp):
            return known.get(op.operands[0])
        match op, [known.get(v) for v in op.operands]:
            case arith.SubfOp(), [k, of] if (k, of) == (_LOWEST, _MAXIMUM):
                known[op.results[0]] = _LOWEST
            case ((math.ExpOp() | math.Exp2Op()), [k]) if k == _LOWEST:
                known[op.results[0]] = _ZERO
            case _:
                return None
    return None

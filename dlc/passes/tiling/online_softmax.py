"""Online softmax: sums weighted by exponentials of scores, minus their maximum, without a whole row of scores.

After each block of scores x with values v, m is the maximum so far, and earlier sums are rescaled:

    m' = max(m, x₁, x₂, …);  s' = s · exp(m − m') + Σⱼ exp(xⱼ − m') · vⱼ

M. Milakov, N. Gimelshein: Online normalizer calculation for softmax (2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.ir import Block, SSAValue, arith, linalg, math
from dlc.passes.tiling.loop_nests import NestStage, StaticLoopNest, combiner_of, initial_fill
from dlc.passes.tiling.masked_softmax import constant_value

# Facts about a buffer: scores (elements along the rows), values derived from them, and values that are complete only after the
# whole row.
_SCORES, _MAXIMUM, _WEIGHTS, _SUM, _COMPLETE_LAST = "scores", "their maximum", "weights", "a sum of weights", "late"


@dataclass(frozen=True)
class OnlineSoftmaxStages:
    """The stages of a nest, by position, that run per key block, and the others.

    `initial` are the fills of `maximum` and `sums`, and stages that read arguments alone, once per row; `deferred` are
    those before the last sum that read complete results. `weights` reads scores as operand `score_operand` and their
    maximum as operand `maximum_operand`.
    """

    initial: tuple[int, ...]
    maximum: int
    weights: int
    score_operand: int
    maximum_operand: int
    sums: tuple[int, ...]
    deferred: tuple[int, ...]


def match_online_softmax(nest: StaticLoopNest, lane: int) -> OnlineSoftmaxStages | None:
    """Return the stages of an online softmax along `lane`; None if the nest needs whole rows."""
    stages = nest.stages
    last = max((k for k, s in enumerate(stages) if lane in s.reductions), default=-1)
    facts: dict[SSAValue, str] = {}
    scores: SSAValue | None = None
    maximum: int | None = None
    weights: tuple[int, int, int] | None = None
    sums: list[int] = []
    early: list[int] = []
    deferred: list[int] = []
    for k, stage in enumerate(stages[: last + 1]):
        root = stage.output.root
        if isinstance(stage.op, linalg.FillOp):
            continue
        operand_facts = [None if a is None else facts.get(a.root) for a in stage.accesses[:-1]]
        if lane not in stage.dims and not any(operand_facts):
            early.append(k)
        elif lane not in stage.dims:
            deferred.append(k)
            facts[root] = _COMPLETE_LAST
        elif lane in stage.reductions:
            if operand_facts == [_SCORES] and maximum is None and _reduces(stage, nest, lane, arith.MaximumfOp, float("-inf")):
                maximum, scores, facts[root] = k, stage.inputs[0].root, _MAXIMUM
            elif operand_facts[0] == _WEIGHTS and not any(operand_facts[1:]) and _reduces(stage, nest, lane, arith.AddfOp, 0.0):
                sums.append(k)
                facts[root] = _SUM
            else:
                return None
        elif not set(operand_facts) - {None, _SCORES}:
            facts[root] = _SCORES
        elif weights is None and (operands := _exponential(stage, operand_facts)) is not None:
            weights = (k, *operands)
            access = stage.accesses[weights[1]]
            if access is None or access.root is not scores:
                return None
            facts[root] = _WEIGHTS
        else:
            return None
    if maximum is None or weights is None or last not in sums or any(lane in s.dims for s in stages[last + 1 :]):
        return None
    fills = [stages.index(f) for k in (maximum, *sums) if (f := initial_fill(stages[k], nest)) is not None]
    return OnlineSoftmaxStages(tuple(sorted([*early, *fills])), maximum, *weights, tuple(sums), tuple(deferred))


def _reduces(stage: NestStage, nest: StaticLoopNest, lane: int, op: type, start: float) -> bool:
    """Return whether a stage reduces one dimension by an op, starting from its identity."""
    initial = initial_fill(stage, nest)
    return (
        stage.reductions == frozenset((lane,))
        and isinstance(combiner_of(stage), op)
        and initial is not None
        and constant_value(initial.op.operands[0]) == start
    )


def _exponential(stage: NestStage, read: Sequence[str | None]) -> tuple[int, int] | None:
    """Return the operands x and m of a stage that computes exp(x − m) of scores and their maximum."""
    block: Block = stage.op.regions[0].block
    if len(read) != 2 or set(read) != {_SCORES, _MAXIMUM}:
        return None
    score_operand, maximum_operand = read.index(_SCORES), read.index(_MAXIMUM)
    match list(block.ops):
        case [arith.SubfOp() as difference, math.ExpOp() | math.Exp2Op() as weight, linalg.YieldOp() as made]:
            x, m = block.args[score_operand], block.args[maximum_operand]
            chain = list(difference.operands) == [x, m] and weight.operands[0] is difference.result
            return (score_operand, maximum_operand) if chain and made.operands[0] is weight.results[0] else None
        case _:
            return None

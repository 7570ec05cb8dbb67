"""Weighted sums that run: weights that are exponentials of scores, less the most of them, need no row of scores whole.

After each block of scores x with values v, m is the most of all so far, and what was summed before is weighted anew:

    m' = max(m, x₁, x₂, …);  s' = s · exp(m − m') + Σⱼ exp(xⱼ − m') · vⱼ

M. Milakov, N. Gimelshein: Online normalizer calculation for softmax (2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.ir import Block, SSAValue, arith, linalg, math
from dlc.passes.tiling.hidden import number_of
from dlc.passes.tiling.nests import Nest, Stage, combiner_of, initial_of

# What is known of a buffer: elements along the rows that no sum or maximum of theirs is in, what is made of those, and what
# is complete only when the rows are.
_SCORES, _MAXIMUM, _WEIGHTS, _SUM, _LATE = "scores", "their maximum", "weights", "a sum of weights", "late"


@dataclass(frozen=True)
class Running:
    """Stages of a nest, by position: those that take rows block by block, and others.

    `begin` are the fills of what runs, `maximum` and `sums`, and what reads arguments alone, once for a row; `late` are those
    before the last sum that read what runs.
    `weights` reads scores as operand `score`, their maximum as operand `most`.
    """

    begin: tuple[int, ...]
    maximum: int
    weights: int
    score: int
    most: int
    sums: tuple[int, ...]
    late: tuple[int, ...]


def running_sums(nest: Nest, lane: int) -> Running | None:
    """How the sums along `lane` run; None where blocks would not be enough for them."""
    stages = nest.stages
    last = max((k for k, s in enumerate(stages) if lane in s.reductions), default=-1)
    known: dict[SSAValue, str] = {}
    scores: SSAValue | None = None
    maximum: int | None = None
    weights: tuple[int, int, int] | None = None
    sums: list[int] = []
    early: list[int] = []
    late: list[int] = []
    for k, stage in enumerate(stages[: last + 1]):
        root = stage.output.root
        if isinstance(stage.op, linalg.FillOp):
            continue
        read = [None if a is None else known.get(a.root) for a in stage.accesses[:-1]]
        if lane not in stage.dims and not any(read):
            early.append(k)
        elif lane not in stage.dims:
            late.append(k)
            known[root] = _LATE
        elif lane in stage.reductions:
            if read == [_SCORES] and maximum is None and _reduces(stage, nest, lane, arith.MaximumfOp, float("-inf")):
                maximum, scores, known[root] = k, stage.inputs[0].root, _MAXIMUM
            elif read[0] == _WEIGHTS and not any(read[1:]) and _reduces(stage, nest, lane, arith.AddfOp, 0.0):
                sums.append(k)
                known[root] = _SUM
            else:
                return None
        elif not set(read) - {None, _SCORES}:
            known[root] = _SCORES
        elif weights is None and (operands := _exponential(stage, read)) is not None:
            weights = (k, *operands)
            access = stage.accesses[weights[1]]
            if access is None or access.root is not scores:
                return None
            known[root] = _WEIGHTS
        else:
            return None
    if maximum is None or weights is None or last not in sums or any(lane in s.dims for s in stages[last + 1 :]):
        return None
    fills = [stages.index(f) for k in (maximum, *sums) if (f := initial_of(stages[k], nest)) is not None]
    return Running(tuple(sorted([*early, *fills])), maximum, *weights, tuple(sums), tuple(late))


def _reduces(stage: Stage, nest: Nest, lane: int, op: type, start: float) -> bool:
    """Whether a stage reduces one dimension by an op, from the number that changes nothing."""
    initial = initial_of(stage, nest)
    return (
        stage.reductions == frozenset((lane,))
        and isinstance(combiner_of(stage), op)
        and initial is not None
        and number_of(initial.op.operands[0]) == start
    )


def _exponential(stage: Stage, read: Sequence[str | None]) -> tuple[int, int] | None:
    """The operands x and m of a stage that makes exp(x − m) of scores and their maximum."""
    block: Block = stage.op.regions[0].block
    if len(read) != 2 or set(read) != {_SCORES, _MAXIMUM}:
        return None
    score, most = read.index(_SCORES), read.index(_MAXIMUM)
    match list(block.ops):
        case [arith.SubfOp() as difference, math.ExpOp() | math.Exp2Op() as weight, linalg.YieldOp() as made]:
            x, m = block.args[score], block.args[most]
            chain = list(difference.operands) == [x, m] and weight.operands[0] is difference.result
            return (score, most) if chain and made.operands[0] is weight.results[0] else None
        case _:
            return None

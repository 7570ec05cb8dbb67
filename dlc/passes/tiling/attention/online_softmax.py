"""Online softmax: compute sums weighted by a softmax block by block, without all scores of a row.

After each block of scores x with values v, m is the maximum so far, and earlier sums are rescaled:

    m' = max(m, x₁, x₂, …);  s' = s · exp(m − m') + Σⱼ exp(xⱼ − m') · vⱼ

M. Milakov, N. Gimelshein: Online normalizer calculation for softmax (2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import cast

from dlc.ir import FloatAttr, SSAValue, arith, linalg, math
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest, combiner_of, initial_fill, masked_select_of

# Facts about a buffer: the scores, values computed from them, and values that depend on complete rows.
_SCORES, _MAXIMUM, _WEIGHTS, _SUM, _DEFERRED = "scores", "maximum", "weights", "sum of weights", "deferred"


@dataclass(frozen=True)
class OnlineSoftmaxOps:
    """The ops of an online softmax, by position; ops that are not listed run once per key block.

    `initial` run before the first block: the fills of `maximum` and `sums`, and ops that read only arguments.
    `deferred` run after the last block: they read complete results. `weights` reads the scores as operand
    `score_operand`, and their maximum as operand `maximum_operand`.
    """

    initial: tuple[int, ...]
    maximum: int
    weights: int
    score_operand: int
    maximum_operand: int
    sums: tuple[int, ...]
    deferred: tuple[int, ...]


def match_online_softmax(nest: SizedLoopNest, lane: int) -> OnlineSoftmaxOps | None:
    """Return the ops of an online softmax along `lane`; None if the nest needs whole rows."""
    nest_ops = nest.ops
    last_sum = max((k for k, op in enumerate(nest_ops) if lane in op.reductions), default=-1)
    facts: dict[SSAValue, str] = {}
    scores: SSAValue | None = None
    maximum: int | None = None
    weights: tuple[int, int, int] | None = None
    sums: list[int] = []
    independent: list[int] = []
    deferred: list[int] = []
    for k, nest_op in enumerate(nest_ops[: last_sum + 1]):
        root = nest_op.output.root
        if nest_op.is_fill:
            continue
        operand_facts = [None if a is None else facts.get(a.root) for a in nest_op.accesses[:-1]]
        if lane not in nest_op.dims and not any(operand_facts):
            independent.append(k)
        elif lane not in nest_op.dims:
            deferred.append(k)
            facts[root] = _DEFERRED
        elif lane in nest_op.reductions:
            if operand_facts == [_SCORES] and maximum is None and _reduces(nest_op, nest, lane, arith.MaximumfOp, -inf):
                maximum, scores, facts[root] = k, nest_op.inputs[0].root, _MAXIMUM
            elif (
                operand_facts[0] == _WEIGHTS and not any(operand_facts[1:]) and _reduces(nest_op, nest, lane, arith.AddfOp, 0.0)
            ):
                sums.append(k)
                facts[root] = _SUM
            else:
                return None
        elif not set(operand_facts) - {None, _SCORES}:
            facts[root] = _SCORES
        elif weights is None and (operands := _exponential(nest_op, operand_facts)) is not None:
            weights = (k, *operands)
            if nest_op.input_accesses[weights[1]].root is not scores:
                return None
            facts[root] = _WEIGHTS
        else:
            return None
    if maximum is None or weights is None or last_sum not in sums or any(lane in op.dims for op in nest_ops[last_sum + 1 :]):
        return None
    fills = [nest_ops.index(f) for k in (maximum, *sums) if (f := initial_fill(nest_ops[k], nest)) is not None]
    return OnlineSoftmaxOps(tuple(sorted([*independent, *fills])), maximum, *weights, tuple(sums), tuple(deferred))


def find_shift(nest: SizedLoopNest, lane: int) -> NestOp | None:
    """Return the row maximum of a softmax along `lane` if it is only subtracted from the scores; else None.

    It need not propagate NaN: a score that is NaN has the weight NaN, with any maximum, and so has every sum of its row.
    """
    softmax = match_online_softmax(nest, lane)
    if softmax is None:
        return None
    maximum, weights = nest.ops[softmax.maximum], nest.ops[softmax.weights]
    is_read_by_weights_alone = all(
        op is weights or op is maximum or all(a.root is not maximum.output.root for a in op.inputs) for op in nest.ops
    )
    return maximum if is_read_by_weights_alone else None


def has_zero_masked_weights(nest: SizedLoopNest, masked_op: NestOp, lane: int) -> bool:
    """Return whether elements that an op masks get zero softmax weights along `lane`, so that they may be skipped.

    The masked value must be -∞, which a row maximum ignores. Its exponential, after subtraction of the maximum, is 0, which
    changes no sum. If the maximum is -∞ or NaN, every exponential of the row is NaN, so the sums are NaN even if most
    elements are skipped.
    """
    select, softmax = masked_select_of(masked_op), match_online_softmax(nest, lane)
    if select is None or softmax is None or _constant_value(select.masked_value) != -inf:
        return False
    return nest.ops[softmax.weights].input_accesses[softmax.score_operand].root is masked_op.output.root


def _constant_value(value: SSAValue) -> float | None:
    """Return the value of a constant scalar, else None."""
    owner = value.owner
    return cast("FloatAttr", owner.value).value.data if isinstance(owner, arith.ConstantOp) else None


def _reduces(nest_op: NestOp, nest: SizedLoopNest, lane: int, combiner: type, start: float) -> bool:
    """Return whether an op reduces only `lane`, by `combiner`, from its identity `start`."""
    initial = initial_fill(nest_op, nest)
    return (
        nest_op.reductions == frozenset((lane,))
        and isinstance(combiner_of(nest_op), combiner)
        and initial is not None
        and _constant_value(initial.op.operands[0]) == start
    )


def _exponential(nest_op: NestOp, operand_facts: Sequence[str | None]) -> tuple[int, int] | None:
    """Return the positions of x and m if an op computes exp(x − m) of scores and their maximum; else None."""
    block = nest_op.body
    if len(operand_facts) != 2 or set(operand_facts) != {_SCORES, _MAXIMUM}:
        return None
    score_operand, maximum_operand = operand_facts.index(_SCORES), operand_facts.index(_MAXIMUM)
    match list(block.ops):
        case [arith.SubfOp() as difference, math.ExpOp() | math.Exp2Op() as weight, linalg.YieldOp() as yield_op]:
            x, m = block.args[score_operand], block.args[maximum_operand]
            is_chain = list(difference.operands) == [x, m] and weight.operands[0] is difference.result
            return (score_operand, maximum_operand) if is_chain and yield_op.operands[0] is weight.results[0] else None
        case _:
            return None

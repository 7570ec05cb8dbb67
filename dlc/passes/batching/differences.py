"""Which values differ between lanes; of a loop: what a step makes differ is so from the first step on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.dialects.dl.programs.control import FailOp, IfOp, ScanOp, WhileOp, captured
from dlc.dialects.dl.programs.identities import AfterOp
from dlc.ir import Block, Operation, SSAValue


def values_that_differ(loop: ScanOp | WhileOp, known: Collection[SSAValue]) -> set[SSAValue]:
    """Those values that differ between lanes, when those outside that do are known, with those of the loop's body."""
    differing = set(known)
    _loop(loop, differing)
    return differing


def _loop(loop: ScanOp | WhileOp, differing: set[SSAValue]) -> None:
    states = loop.block.args[: loop.state_count] if isinstance(loop, ScanOp) else loop.block.args
    differing.update(a for v, a in zip(loop.arguments, loop.block.args, strict=True) if v in differing)
    before = -1
    while before != len(differing):
        before = len(differing)
        _body(loop.block, differing)
        following = loop.yielded
        if isinstance(loop, WhileOp):
            again, *following = following
            # Lanes take different numbers of steps, so that what a step changes differs.
            if again in differing or loop.condition in differing:
                differing.update(a for a, v in zip(states, following, strict=True) if v is not a)
        differing.update(a for a, v in zip(states, following, strict=False) if v in differing)
    differing.update(r for r, a in zip(loop.results, states, strict=False) if a in differing)
    if isinstance(loop, ScanOp):
        made = zip(loop.results[len(states) :], loop.yielded[len(states) :], strict=True)
        differing.update(r for r, v in made if v in differing)


def _body(block: Block, differing: set[SSAValue]) -> None:
    """Adds the values of a body that are computed from some that differ."""
    for op in block.ops:
        match op:
            case ScanOp() | WhileOp():
                _loop(op, differing)
            case IfOp():
                for inner in op.blocks:
                    _body(inner, differing)
                yields = [b.last_op.operands for b in op.blocks if b.last_op and not isinstance(b.last_op, FailOp)]
                for k, result in enumerate(op.results):
                    if op.condition in differing or any(values[k] in differing for values in yields):
                        differing.add(result)
            case _:
                if any(v in differing for v in computed_from(op)):
                    differing.update(op.results)


def computed_from(op: Operation) -> Sequence[SSAValue]:
    """The values that an op's results are computed from, those that its bodies read among them."""
    # That another value is there is no part of the result.
    own = op.operands[:1] if isinstance(op, AfterOp) else op.operands
    return [*own, *(v for region in op.regions for v in captured(region.block))]

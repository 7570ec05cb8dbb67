"""Loop-invariant code motion for `dl` loops and branches."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.control import Control, LoopLikeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.ir import Block, Context, ModuleOp, ModulePass, Operation
from dlc.passes.dl.rewriting import program_blocks


@dataclass(frozen=True)
class LoopInvariantCodeMotionPass(ModulePass):
    """`loop-invariant-code-motion`: moves ops that use no value of a loop's body before the loop.

        dl.scan %h, %xs { ^bb0(%h, %x): %u = dl.transpose %w;  %p = dl.matmul %h, %u; … }
    →   %u = dl.transpose %w;  dl.scan %h, %xs { ^bb0(%h, %x): %p = dl.matmul %h, %u; … }

    From branches only weight expressions are hoisted, which are evaluated at compile time; other ops might run needlessly.
    """

    name = "loop-invariant-code-motion"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        # Innermost first, so that an op can leave several nested bodies.
        for block in reversed(list(program_blocks(op))):
            owner = block.parent_op()
            if isinstance(owner, Control):
                _hoist(block, owner)


def _hoist(block: Block, owner: Control) -> None:
    weights = WeightExpressions()
    target = owner.parent
    assert target is not None
    for op in list(block.ops):
        is_hoistable = isinstance(owner, LoopLikeOp) or all(r in weights for r in op.results)
        if isinstance(op, DlOp) and is_hoistable and not isinstance(op, DataDependent) and not _reads(op, block):
            op.detach()
            target.insert_op_before(op, owner)


def _reads(op: Operation, block: Block) -> bool:
    """Return whether an op reads a value defined in the body."""
    return any((v.owner if isinstance(v.owner, Block) else v.owner.parent) is block for v in op.operands)

"""Which ops of a program may belong in a kernel."""

from __future__ import annotations

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.interfaces import Contraction, Elementwise, Movement, Staged, Window
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.fusion.spaces import absorbs
from dlc.passes.views import is_view, joins_pieces
from dlc.target import Target

# Longer chains gain nothing more from staying in registers, and spill.
MAX_OPS = 64


class Candidates:
    """The ops of a block that may belong in kernels; it shrinks as these are formed.

    `constant` are the weight expressions, `position` says where each op stands, `joined` are joins that kernels do as they
    write the pieces.
    """

    def __init__(self, block: Block, target: Target) -> None:
        self.block = block
        self.alignment, self.longest_row = target.alignment, target.machine.row_elements
        self.constant = WeightExpressions()
        self.position: dict[Operation, int] = {op: k for k, op in enumerate(block.ops)}
        self.joined = {op for op in block.ops if isinstance(op, ConcatOp) and self._joins_results(op)}

    def __contains__(self, op: object) -> bool:
        """Whether an op of the host program belongs in a kernel: views are parts of buffers, weight expressions run ahead."""
        if not isinstance(op, DlOp) or op.parent is not self.block or op in self.joined:
            return False
        return not self.is_view(op) and not self.constant.holds(op)

    def is_view(self, op: Operation) -> bool:
        """Whether an op's result is a part of a buffer, which costs nothing."""
        return is_view(op, self.alignment)

    def place(self, op: Operation) -> int:
        """Where an op of the block stands; what is none stands behind all of them."""
        return self.position.get(op, len(self.position))

    def reads_through(self, op: Operation, index: int) -> bool:
        """Whether operand `index` of a kernel's op is a movement that the kernel makes itself."""
        value = op.operands[index]
        if not isinstance(value.owner, Movement) or self.is_view(value.owner):
            return False
        return value not in self.constant and absorbs(op, index, value.owner)

    def _joins_results(self, op: ConcatOp) -> bool:
        """Whether all that is joined is made by kernels of their own, which may as well write it where it is joined."""
        return joins_pieces(op, self.alignment) and all(map(self._ends_heavy, op.values))

    def _ends_heavy(self, value: SSAValue) -> bool:
        """Whether an elementwise chain leads to `value` from a contraction or the like."""
        pending, met = [value], {value}
        while pending and len(met) < MAX_OPS:
            op = pending.pop().owner
            if isinstance(op, Contraction | Staged | Window):
                return True
            beside = [v for v in op.operands if shape_of(v) == shape_of(value)] if isinstance(op, Elementwise) else []
            pending += [v for v in beside if v not in met]
            met.update(beside)
        return False

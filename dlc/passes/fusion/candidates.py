"""Candidates for fusion: the ops of a program that may belong in a kernel."""

from __future__ import annotations

from dlc.dialects.dl.base import DlOp, shape_of
from dlc.dialects.dl.interfaces import Contraction, DataMovement, Elementwise, StagedComposite, Window
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.dialects.dl.programs.control import ScanOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.fusion.iteration_spaces import can_fuse_movement
from dlc.passes.views import is_contiguous_concat, is_view
from dlc.target import Target

# Maximum ops of a kernel; more of them would spill registers without benefit.
MAX_KERNEL_OPS = 64


class Candidates:
    """The ops of a block that may belong in kernels; forming a kernel removes its ops.

    Attributes:
        constant: The weight expressions.
        position: The index of each op in the block.
        fused_concats: The concatenations into whose results kernels write directly.
    """

    def __init__(self, block: Block, target: Target) -> None:
        self.block = block
        self.alignment, self.element_alignment = target.alignment, target.element_alignment
        self.max_row_elements = target.costs.max_row_elements
        self.constant = WeightExpressions()
        self.position: dict[Operation, int] = {op: k for k, op in enumerate(block.ops)}
        self.fused_concats = {op for op in block.ops if isinstance(op, ConcatOp) and self._concatenates_kernel_results(op)}

    def __contains__(self, op: object) -> bool:
        """Return whether an op belongs in a kernel: views and weight expressions do not."""
        if not isinstance(op, DlOp) or op.parent is not self.block or op in self.fused_concats:
            return False
        return not self.is_view(op) and not self.constant.contains_results_of(op)

    def is_view(self, op: Operation) -> bool:
        """Return whether an op's result is a view of a buffer, which costs nothing."""
        return is_view(op, self.alignment)

    def position_of(self, op: Operation) -> int:
        """Return the position of an op in the block; ops outside of the block are after all others."""
        return self.position.get(op, len(self.position))

    def fuses_operand(self, op: Operation, index: int) -> bool:
        """Return whether a kernel that contains `op` also contains the data-movement op that computes this operand."""
        value = op.operands[index]
        if not isinstance(value.owner, DataMovement) or self.is_view(value.owner):
            return False
        return value not in self.constant and can_fuse_movement(op, index, value.owner)

    def _concatenates_kernel_results(self, op: ConcatOp) -> bool:
        """Return whether separate kernels compute a concatenation's operands, or a loop one of them, directly in its result."""
        if any(isinstance(v.owner, ScanOp) for v in op.values):
            return is_contiguous_concat(op, self.element_alignment)
        return is_contiguous_concat(op, self.alignment) and all(map(self._follows_fusion_root, op.values))

    def _follows_fusion_root(self, value: SSAValue) -> bool:
        """Return whether `value` is computed elementwise from a contraction, window or similar op."""
        pending, visited = [value], {value}
        while pending and len(visited) < MAX_KERNEL_OPS:
            op = pending.pop().owner
            if isinstance(op, Contraction | StagedComposite | Window):
                return True
            operands = [v for v in op.operands if shape_of(v) == shape_of(value)] if isinstance(op, Elementwise) else []
            pending += [v for v in operands if v not in visited]
            visited.update(operands)
        return False

"""Prepare attention kernels: pack keys (and values), and normalize after P·V."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.functions import ExpOp
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Composite, Contraction
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.ir import BlockArgument, BoolAttr, Context, ModuleOp, SSAValue, ops_of
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import erase_unused, program_blocks, rewrite_forward, users
from dlc.passes.dl.simplification.cse import merge_equal_ops
from dlc.passes.fusion.assign_layouts import panel_axis
from dlc.passes.fusion.attention_patterns import match_row_scale
from dlc.passes.fusion.dispatch_arguments import DispatchArguments
from dlc.passes.fusion.kernel_table import KernelTable
from dlc.passes.fusion.pack_arguments import has_set_conflicts, pack_argument
from dlc.passes.fusion.query_vectorization import QueryVectorization

# The width of a panel and of the register tile, in vectors.
PANEL_VECTORS = 2


@dataclass(frozen=True)
class PrepareAttentionPass(TargetPass):
    """`prepare-attention`: normalize the attention product instead of the softmax weights, and pack keys in panels.

        dl.kernel @attention(%q, %kt, %v) { %s = dl.matmul %q, %kt;  %p = dl.softmax %s;  dl.matmul %p, %v }
      →
        %keys = dl.dispatch @pack(%k)
        dl.kernel @attention(%q, %keys, %v) {
          %kt = dl.unpack (dl.transpose %keys);  %s = dl.matmul %q, %kt
          %e = dl.exp …;  %t = dl.reduce_sum %e;  %y = dl.matmul %e, %v;  dl.mul %y, (dl.div 1, %t) }

    (Σⱼ wⱼ·vⱼ)·r = Σⱼ (wⱼ·r)·vⱼ. Keys are packed because each row of scores reads all of them. If queries fill
    the SIMD lanes, queries are vectorized along lanes instead, and keys are read in place:

        dl.kernel @attention(%q, %k, %v) {
          %s = dl.matmul %k, (dl.cast (dl.transpose %q));  …;  %y = dl.matmul (dl.transpose %e), %v; … }

    `exact`: do not move ops across a sum, and do not transpose. Requires static shapes, and one dispatch per attention
    kernel and per kernel that transposes its operands.
    """

    name = "prepare-attention"

    exact: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = KernelTable(op)
        contractions_by_kernel = {
            k.symbol: [c for c in k.body.block.ops if isinstance(c, Contraction)] for k in ops_of(op.body.block, KernelOp)
        }
        pairs = {name: contractions for name, contractions in contractions_by_kernel.items() if len(contractions) == 2}
        for block in program_blocks(op) if pairs else ():
            for dispatch in [d for d in ops_of(block, DispatchOp) if d.symbol in pairs]:
                kernel = kernels[dispatch.symbol]
                scores_op, output_op = pairs[dispatch.symbol]
                if not self.exact:
                    rewrite_forward(kernel.body.block, _decomposed)
                    # Merge the row maximum of the softmax with the one that tests for fully masked rows.
                    merge_equal_ops(kernel.body.block)
                    _scale_after_sum(output_op)
                    _mark_absolute_accuracy(output_op)
                scores_op, output_op = (c for c in kernel.body.block.ops if isinstance(c, Contraction))
                arguments = DispatchArguments(kernels, dispatch)
                if not self.exact and QueryVectorization(self.target, arguments, scores_op, output_op).apply_if_profitable():
                    continue
                self._pack(arguments, scores_op)
                if self._should_pack_values(arguments, output_op):
                    self._pack(arguments, output_op)

    def _should_pack_values(self, arguments: DispatchArguments, output_op: Contraction) -> bool:
        """Return whether to pack values too: they are transposed anyway, or have cache set conflicts."""
        values = output_op.operands[1]
        if isinstance(values, BlockArgument) and arguments.strip_transpose(values)[0] is not arguments.operand_of(values):
            return True
        rows, width = map(int, shape_of(values)[-2:])
        return has_set_conflicts(self.target, element_type_of(values), rows, width, PANEL_VECTORS)

    def _pack(self, arguments: DispatchArguments, contraction: Contraction) -> None:
        """Pack the second operand of a kernel's contraction in panels."""
        argument, axis = contraction.operands[1], panel_axis(contraction, 1)
        if isinstance(argument, BlockArgument) and argument.has_one_use() and axis is not None and 0 not in shape_of(argument):
            width = max(4, numpy_dtype(element_type_of(contraction.results[0])).itemsize)
            pack_argument(arguments, argument, axis, PANEL_VECTORS * self.target.lanes(width), contraction)


def _decomposed(op: DlOp) -> Sequence[SSAValue] | None:
    return op.decompose(*op.operands) if isinstance(op, Composite) else None


def _scale_after_sum(output_op: Contraction) -> None:
    """Move ops that scale whole rows of softmax weights after the contraction."""
    while (row_scale := match_row_scale(output_op.operands[0])) is not None:
        op, k, weights = row_scale
        next_op = output_op.next_op
        assert next_op is not None
        build = DlBuilder(next_op, op.location)
        total = output_op.results[0]
        copy = type(op).create(
            operands=[total if j == k else v for j, v in enumerate(op.operands)],
            result_types=[total.type],
            properties=op.properties,
        )
        build.insert(copy)
        total.replace_uses_with_if(copy.results[0], lambda use, copy=copy: use.operation is not copy)
        output_op.operands[0] = weights
        erase_unused([op])


def _mark_absolute_accuracy(output_op: Contraction) -> None:
    """Mark an exp that only sums use: its accuracy matters relative to the largest softmax weight of the row, 1."""
    weights = output_op.operands[0]
    if isinstance(weights.owner, ExpOp) and all(isinstance(reader, ReduceSumOp | Contraction) for reader in users(weights)):
        weights.owner.properties["absolute_accuracy"] = BoolAttr.from_bool(True)

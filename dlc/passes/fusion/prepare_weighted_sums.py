"""Kernels of two contractions, such as attention: what the first one streams is packed, factors of rows come last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.dl.arithmetic.functions import ExpOp
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Composite, Contraction
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.ir import BlockArgument, BoolAttr, Context, ModuleOp, SSAValue, ops_of
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import erase_unused, program_blocks, rewrite_forward, users
from dlc.passes.dl.simplification.cse import share
from dlc.passes.fusion.arguments import Arguments
from dlc.passes.fusion.assign_layouts import panel_axis
from dlc.passes.fusion.pack_arguments import crowd, pack
from dlc.passes.fusion.queries_along_lanes import QueriesAlongLanes
from dlc.passes.fusion.weighted_sums import of_rows

# A panel is a row of the register tile.
VECTORS = 2


@dataclass(frozen=True)
class PrepareWeightedSumsPass(TargetPass):
    """`prepare-weighted-sums`: the sums of weighted rows are scaled instead of the weights, and keys are packed in panels.

        dl.kernel @attention(%q, %kt, %v) { %s = dl.matmul %q, %kt;  %p = dl.softmax %s;  dl.matmul %p, %v }
      →
        %keys = dl.dispatch @pack(%k)
        dl.kernel @attention(%q, %keys, %v) {
          %kt = dl.unpack (dl.transpose %keys);  %s = dl.matmul %q, %kt
          %e = dl.exp …;  %t = dl.reduce_sum %e;  %y = dl.matmul %e, %v;  dl.mul %y, (dl.div 1, %t) }

    (Σⱼ wⱼ·vⱼ)·r = Σⱼ (wⱼ·r)·vⱼ. Each row of the first contraction's result goes through all of its second operand, so that this
    had better lie in memory in the order in which it is read. Where queries fill the lanes, they go along them, and keys are
    read as they lie:

        dl.kernel @attention(%q, %k, %v) {
          %s = dl.matmul %k, (dl.cast (dl.transpose %q));  …;  %y = dl.matmul (dl.transpose %e), %v; … }

    `exact`: nothing moves across a sum, and nothing is turned. Requires that such kernels, of known sizes, and those that
    transpose have one dispatch each.
    """

    name = "prepare-weighted-sums"

    exact: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = {k.symbol: k for k in op.ops if isinstance(k, KernelOp)}
        found = {name: [c for c in k.body.block.ops if isinstance(c, Contraction)] for name, k in kernels.items()}
        pairs = {name: contractions for name, contractions in found.items() if len(contractions) == 2}
        for block in program_blocks(op) if pairs else ():
            for dispatch in [d for d in ops_of(block, DispatchOp) if d.symbol in pairs]:
                kernel = kernels[dispatch.symbol]
                first, second = pairs[dispatch.symbol]
                if not self.exact:
                    rewrite_forward(kernel.body.block, _decomposed)
                    # Whether a row attends anything is asked of the maximum that its softmax takes.
                    share(kernel.body.block)
                    _scale_last(second)
                    _weigh(second)
                first, second = (c for c in kernel.body.block.ops if isinstance(c, Contraction))
                arguments = Arguments(op, kernels, dispatch)
                if not self.exact and QueriesAlongLanes(self.target, arguments, first, second).turn():
                    continue
                self._pack(arguments, first)
                if self._pays(arguments, second):
                    self._pack(arguments, second)

    def _pays(self, arguments: Arguments, second: Contraction) -> bool:
        """Whether values had better be packed too: they are moved anyway, or the nearest cache does not hold them."""
        values = second.operands[1]
        if isinstance(values, BlockArgument) and arguments.untransposed(values)[0] is not arguments.given(values):
            return True
        rows, width = map(int, shape_of(values)[-2:])
        return crowd(self.target, element_type_of(values), rows, width, VECTORS)

    def _pack(self, arguments: Arguments, contraction: Contraction) -> None:
        """Gives a kernel's contraction its second operand in panels."""
        argument, axis = contraction.operands[1], panel_axis(contraction, 1)
        if isinstance(argument, BlockArgument) and argument.has_one_use() and axis is not None and 0 not in shape_of(argument):
            width = max(4, numpy_dtype(element_type_of(contraction.results[0])).itemsize)
            pack(arguments, argument, axis, VECTORS * self.target.lanes(width), contraction)


def _decomposed(op: DlOp) -> Sequence[SSAValue] | None:
    return op.decompose(*op.operands) if isinstance(op, Composite) else None


def _scale_last(second: Contraction) -> None:
    """What treats all weights of a row alike goes behind the sum that they are for."""
    while (found := of_rows(second.operands[0])) is not None:
        op, k, weights = found
        following = second.next_op
        assert following is not None
        b = Build(following, op.location)
        total = second.results[0]
        copy = type(op).create(
            operands=[total if j == k else v for j, v in enumerate(op.operands)],
            result_types=[total.type],
            properties=op.properties,
        )
        b.insert(copy)
        total.replace_uses_with_if(copy.results[0], lambda use, copy=copy: use.operation is not copy)
        second.operands[0] = weights
        erase_unused([op])


def _weigh(second: Contraction) -> None:
    """Says of the weights that errors count beside the largest of a row, which is 1, if nothing but sums reads them."""
    weights = second.operands[0]
    if isinstance(weights.owner, ExpOp) and all(isinstance(reader, ReduceSumOp | Contraction) for reader in users(weights)):
        weights.owner.properties["beside_one"] = BoolAttr.from_bool(True)

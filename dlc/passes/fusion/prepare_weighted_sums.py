"""Kernels of two contractions, such as attention: what the first one streams is packed, factors of rows come last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from dlc.arrays import ALIGNMENT
from dlc.dialects.dl.arithmetic.functions import ExpOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Composite, Contraction
from dlc.dialects.dl.movement.packing import UnpackOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp, TransposeOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp, empty_kernel
from dlc.dialects.dl.reductions.reduction import ReduceSumOp
from dlc.ir import BlockArgument, BoolAttr, Context, FunctionType, ModuleOp, NameLoc, NoneAttr, SSAValue, StringAttr
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import erase_unused, program_blocks, rewrite_forward, users
from dlc.passes.dl.simplification.cse import share
from dlc.passes.fusion.assign_layouts import panel_axis
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
    had better lie in memory in the order in which it is read. `exact`: nothing moves across a sum. Requires that such kernels,
    of known sizes, and those that transpose have one dispatch each.
    """

    name = "prepare-weighted-sums"

    exact: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = {k.symbol: k for k in op.ops if isinstance(k, KernelOp)}
        found = {name: [c for c in k.body.block.ops if isinstance(c, Contraction)] for name, k in kernels.items()}
        pairs = {name: contractions for name, contractions in found.items() if len(contractions) == 2}
        for block in program_blocks(op):
            for dispatch in [d for d in block.ops if isinstance(d, DispatchOp) and d.symbol in pairs]:
                kernel = kernels[dispatch.symbol]
                first, second = pairs[dispatch.symbol]
                if not self.exact:
                    rewrite_forward(kernel.body.block, _decomposed)
                    # Whether a row attends anything is asked of the maximum that its softmax takes.
                    share(kernel.body.block)
                    _scale_last(second)
                    _weigh(second)
                first, second = (c for c in kernel.body.block.ops if isinstance(c, Contraction))
                self._pack(op, kernels, dispatch, first)
                if self._pays(dispatch, kernels, second):
                    self._pack(op, kernels, dispatch, second)

    def _pays(self, dispatch: DispatchOp, kernels: dict[str, KernelOp], second: Contraction) -> bool:
        """Whether values had better be packed too: they are moved anyway, or the nearest cache does not hold them.

        Row by row a panel's lines lie in some of its sets. Where those are fewer than half, or lines come one by one instead of
        in pairs, as a cache asks for them, it holds a panel only where it holds all of them.
        """
        values = second.operands[1]
        if isinstance(values, BlockArgument):
            argument = dispatch.arguments[values.index]
            if _untransposed(argument, kernels)[0] is not argument:
                return True
        machine, size = self.target.machine, numpy_dtype(element_type_of(values)).itemsize
        rows, width = map(int, shape_of(values)[-2:])
        panel = min(VECTORS * self.target.lanes(max(4, size)), width) * size
        apart = panel < 2 * ALIGNMENT or 2 * panel < gcd(machine.way_bytes, width * size)
        return apart and rows * width * size > machine.cache_ways * machine.way_bytes

    def _pack(self, module: ModuleOp, kernels: dict[str, KernelOp], dispatch: DispatchOp, first: Contraction) -> None:
        """Gives a kernel's contraction its second operand in panels."""
        argument, axis = first.operands[1], panel_axis(first, 1)
        if not isinstance(argument, BlockArgument) or not argument.has_one_use() or axis is None or 0 in shape_of(argument):
            return
        kernel = kernels[dispatch.symbol]
        length = int(shape_of(argument)[axis])
        width = max(4, numpy_dtype(element_type_of(first.results[0])).itemsize)
        tile = min(VECTORS * self.target.lanes(width), length)
        source, order = _untransposed(dispatch.arguments[argument.index], kernels)
        packed = _packed(module, source, [*order[:axis], *order[axis + 1 :], order[axis]], tile, dispatch)
        unused = dispatch.arguments[argument.index].owner
        dispatch.operands[argument.index] = packed
        if isinstance(unused, DispatchOp) and not any(r.first_use for r in unused.results):
            kernels[unused.symbol].detach()
            kernels[unused.symbol].erase()
            unused.detach()
            unused.erase()
        block = kernel.body.block
        inner = block.insert_arg(packed.type, argument.index)
        inner.name_hint = argument.name_hint
        b, batch = Build(first), rank_of(inner) - 3
        tiles = b(TransposeOp, inner, permutation=(batch, *range(batch), batch + 1, batch + 2))
        unpacked = b(UnpackOp, tiles, axis=axis, tile=tile, size=length)
        argument.replace_all_uses_with(unpacked)
        block.erase_arg(argument)
        kernel.function_type = FunctionType.from_lists(block.arg_types, kernel.function_type.outputs.data)


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


def _untransposed(value: SSAValue, kernels: dict[str, KernelOp]) -> tuple[SSAValue, tuple[int, ...]]:
    """What a kernel has transposed to make a value, and how; itself if none has."""
    made = value.owner
    if isinstance(made, DispatchOp):
        move, *rest = kernels[made.symbol].body.block.ops
        if isinstance(move, TransposeOp) and len(rest) == 1:
            return made.arguments[0], move.axes
    return value, tuple(range(rank_of(value)))


def _packed(module: ModuleOp, source: SSAValue, order: Sequence[int], tile: int, dispatch: DispatchOp) -> SSAValue:
    """`source` with its axes in `order`, of which the last is split into tiles, filled up with zeros.

    The tiles of one product lie together: those of all products in turn would lie far apart, in the same sets of a cache.
    """
    b, axis = Build(dispatch), order[-1]
    shape = [int(s) for s in shape_of(source)]
    if missing := -shape[axis] % tile:
        high = [missing if a == axis else 0 for a in range(len(shape))]

        def pad(b: Build, x: SSAValue) -> SSAValue:
            return b(PadOp, x, b.scalar(0, like=x), low=[0] * len(shape), high=high, pad_mode="constant")

        source = _made(module, "pad", pad, source, dispatch)
        shape[axis] += missing
    split = b(ReshapeOp, source, shape=(*shape[:axis], shape[axis] // tile, tile, *shape[axis + 1 :]))
    *batch, row = (a + (a > axis) for a in order[:-1])
    return _made(module, "pack", lambda b, x: b(TransposeOp, x, permutation=(*batch, axis, row, axis + 1)), split, dispatch)


def _made(
    module: ModuleOp, stem: str, body: Callable[[Build, SSAValue], SSAValue], source: SSAValue, dispatch: DispatchOp
) -> SSAValue:
    """What a kernel of its own makes of a value, before a dispatch."""
    symbols = {k.symbol for k in module.ops if isinstance(k, KernelOp)}
    name = next(n for n in (f"{stem}_{k}" for k in range(len(symbols) + 1)) if n not in symbols)
    kernel = empty_kernel(name, [source.type], [])
    result = body(Build(kernel.body.block, NameLoc(StringAttr("#0"), NoneAttr())), kernel.body.block.args[0])
    kernel.body.block.add_op(YieldOp([result]))
    kernel.function_type = FunctionType.from_lists([source.type], [result.type])
    module.body.block.add_op(kernel)
    made = DispatchOp(name, [source], [result.type])
    Build(dispatch).insert(made)
    return made.outputs[0]

"""Choose the layouts of tensors between kernels, as types: packed weights and packed loop-invariant operands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple, cast

from dlc.dialects.dl.base import element_type_of, memoize_by_signature, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.movement.packing import PackOp, UnpackOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.programs.control import LoopLikeOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.sizes import symbol
from dlc.ir import AffineDimExpr, Block, BlockArgument, Context, ModuleOp, SSAValue, ops_of
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.fold_scales import weight_axes
from dlc.passes.dl.rewriting import program_blocks
from dlc.passes.fusion.kernel_table import KernelTable, replace_argument
from dlc.passes.fusion.panel_width import choose_panel_width
from dlc.shapes.dims import is_static, substitute


class _Packed(NamedTuple):
    """A packed argument of a kernel: its index, the packed axis, and the panel width."""

    argument: int
    axis: int
    tile: int


@dataclass(frozen=True)
class AssignLayoutsPass(TargetPass):
    """`assign-layouts{target="cpu"}`: pack the weights of contractions in panels of output channels.

        %y = dl.dispatch @conv(%x, %w);  dl.kernel @conv(%x, %w) { dl.conv %x, %w }
    →   %p = dl.pack %w {axis = 3, tile = 32};  %y = dl.dispatch @conv(%x, %p)
        dl.kernel @conv(%x, %p) { %w = dl.unpack %p {axis = 3, tile = 32, size = 64}; dl.conv %x, %w }

    A panel is stored in the order in which the innermost loop reads it. The pack op is a weight expression, which is
    evaluated once. Operands that are loop-invariant, but not weights, are packed by a kernel before the loop. Weights
    of grouped convolutions are not packed, since their vectors are along the groups.

    Requires that all dispatches of a kernel have weights as the same operands, and that a kernel in a loop has one
    dispatch: run it before `dedupe-kernels`.
    """

    name = "assign-layouts"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = KernelTable(op)
        weight_expressions = WeightExpressions()
        packed_arguments: dict[str, list[_Packed]] = {}
        for block in program_blocks(op):
            for dispatch in ops_of(block, DispatchOp):
                if dispatch.symbol not in packed_arguments:
                    packed_arguments[dispatch.symbol] = self._pack_weights(kernels, dispatch, weight_expressions)
                    continue
                for argument, axis, tile in packed_arguments[dispatch.symbol]:
                    pack = PackOp.make(dispatch.arguments[argument], axis=axis, tile=tile)
                    dispatch.operands[argument] = DlBuilder(dispatch).insert(pack).results[0]

    def _pack_weights(self, kernels: KernelTable, dispatch: DispatchOp, weight_expressions: WeightExpressions) -> list[_Packed]:
        """Pack the weights of a kernel at its first dispatch; return the operands that other dispatches must pack."""
        packed_arguments: list[_Packed] = []
        kernel = kernels[dispatch.symbol]
        weights = [(c, k) for c in kernel.body.block.ops if isinstance(c, Contraction) for k in range(1, len(c.operands))]
        for contraction, k in weights:
            argument = contraction.operands[k]
            if not isinstance(argument, BlockArgument) or not argument.has_one_use():
                continue
            weight = dispatch.arguments[argument.index]
            axis = panel_axis(contraction, k)
            loop = None if weight in weight_expressions else _outermost_invariant_loop(dispatch, weight)
            if (weight not in weight_expressions and loop is None) or axis is None or 0 in shape_of(weight):
                continue
            tile = self._panel_width(contraction, kernel)
            packing = {"axis": axis, "tile": tile}

            def pack(build: DlBuilder, value: SSAValue, packing: dict[str, int] = packing) -> SSAValue:
                return build(PackOp, value, **packing)

            if loop is None:
                packed = pack(DlBuilder(dispatch), weight)
            else:
                packed = kernels.insert("pack", weight, pack, loop, dispatch.location)
            dispatch.operands[argument.index] = packed
            packed_arguments.append(_Packed(argument.index, axis, tile))
            unpack = partial(DlBuilder(contraction), UnpackOp, **packing, size=cast(int, shape_of(argument)[axis]))
            replace_argument(kernel, argument, packed.type, unpack)
        return packed_arguments

    def _panel_width(self, contraction: Contraction, kernel: KernelOp) -> int:
        """Return the panel width for a contraction of a kernel, for the kernel's representative sizes."""
        target, result = self.target, contraction.results[0]
        symbol_sizes = {symbol(k): size for k, size in enumerate(kernel.representative)}
        *rows, channels = (int(substitute(s, symbol_sizes)) for s in shape_of(result))
        # Accumulators have at least four bytes.
        dtype = numpy_dtype(element_type_of(result))
        return choose_panel_width(
            channels,
            prod(rows),
            target.lanes(max(4, dtype.itemsize)),
            target,
            rows[-1] if rows and _has_separate_rows(contraction) else prod(rows),
            is_integer=dtype.kind in "iu",
            decodes_weights=contraction.dequantizes_weights,
            sums_per_step=contraction.has_step_accumulators,
        )


def _has_separate_rows(contraction: Contraction) -> bool:
    """Return whether a window, a stride or padding separates the rows of images, so that a tile covers part of one row."""
    structure = contraction.structure()
    has_window = sum(r and e != 1 for r, e in zip(structure.reductions, structure.extents, strict=True)) > 1
    row = cast(AffineDimExpr, structure.maps[-1].results[-2]).position
    has_stride = max(structure.maps[0].eval([d == row for d in range(len(structure.extents))], [])) > 1
    block = contraction.parent_block()
    return has_window or has_stride or (block is not None and any(isinstance(op, PadOp) for op in block.ops))


@memoize_by_signature
def panel_axis(contraction: Contraction, k: int) -> int | None:
    """Return the axis of operand k that is the last axis of the result; None if it is missing or split into groups."""
    if contraction.structure().views[k] != shape_of(contraction.operands[k]):
        return None
    return weight_axes(contraction, k).get(rank_of(contraction.results[0]) - 1)


def _outermost_invariant_loop(dispatch: DispatchOp, value: SSAValue) -> LoopLikeOp | None:
    """Return the outermost loop around a dispatch in which a value of static shape is invariant; else None."""
    outermost: LoopLikeOp | None = None
    defining_block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    block = dispatch.parent
    while block is not None and block is not defining_block:
        outer = block.parent_op()
        outermost = outer if isinstance(outer, LoopLikeOp) else outermost
        block = outer.parent if outer is not None else None
    return outermost if is_static(shape_of(value)) else None

"""Layouts between kernels, as types: packed weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from dlc.dialects.dl.base import element_type_of, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.movement import PackOp, UnpackOp
from dlc.dialects.dl.program import DispatchOp, KernelOp
from dlc.dialects.dl.weight_expressions import WeightExpressions
from dlc.dialects.sizes import symbol
from dlc.dims import substitute
from dlc.ir import BlockArgument, Context, FunctionType, ModuleOp
from dlc.passes.base import TargetPass
from dlc.passes.dl.fold_scales import weight_axes
from dlc.passes.dl.rewriting import program_blocks
from dlc.passes.fusion.panels import choose_panel


@dataclass(frozen=True)
class AssignLayoutsPass(TargetPass):
    """`assign-layouts{target="cpu"}`: weights of contractions are packed in panels of output channels.

        %y = dl.dispatch @conv(%x, %w);  dl.kernel @conv(%x, %w) { dl.conv %x, %w }
    →   %p = dl.pack %w {axis = 3, tile = 32};  %y = dl.dispatch @conv(%x, %p)
        dl.kernel @conv(%x, %p) { %w = dl.unpack %p {axis = 3, tile = 32, size = 64}; dl.conv %x, %w }

    A panel lies in memory in the order in which the innermost loop reads it. The pack is an expression of weights, evaluated
    once. Weights of grouped convolutions stay as they are: their vectors run along the groups.

    Requires kernels with one dispatch each, so run it before `dedupe-kernels`.
    """

    name = "assign-layouts"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = {k.symbol: k for k in op.ops if isinstance(k, KernelOp)}
        for block in program_blocks(op):
            constant = WeightExpressions(block)
            for dispatch in list(block.ops):
                if isinstance(dispatch, DispatchOp):
                    self._pack_weights(dispatch, kernels[dispatch.symbol], constant)

    def _pack_weights(self, dispatch: DispatchOp, kernel: KernelOp, constant: WeightExpressions) -> None:
        for contraction in [c for c in kernel.body.block.ops if isinstance(c, Contraction)]:
            argument = contraction.operands[1]
            if not isinstance(argument, BlockArgument) or not argument.has_one_use():
                continue
            weight = dispatch.arguments[argument.index]
            axis = _panel_axis(contraction)
            if weight not in constant or axis is None or 0 in shape_of(weight):
                continue
            tile = self._panel(contraction, kernel.representative)
            pack = PackOp.make(weight, axis=axis, tile=tile)
            Build(dispatch).insert(pack)
            dispatch.operands[argument.index] = pack.result
            _unpack_argument(kernel, argument, contraction, pack)

    def _panel(self, contraction: Contraction, sizes: Sequence[int]) -> int:
        target, result = self.target, contraction.results[0]
        known = {symbol(k): size for k, size in enumerate(sizes)}
        *rows, channels = (int(substitute(s, known)) for s in shape_of(result))
        # Sums of narrower types are kept in four bytes.
        width = max(4, numpy_dtype(element_type_of(result)).itemsize)
        return choose_panel(channels, prod(rows), target.lanes(width), target)


def _panel_axis(contraction: Contraction) -> int | None:
    """The axis of the weights that becomes the result's last one; None if it is split into groups, or not there."""
    if contraction.structure().views[1] != shape_of(contraction.operands[1]):
        return None
    return weight_axes(contraction).get(rank_of(contraction.results[0]) - 1)


def _unpack_argument(kernel: KernelOp, argument: BlockArgument, contraction: Contraction, pack: PackOp) -> None:
    """Gives a kernel's argument the packed type; the contraction reads it unpacked."""
    block = kernel.body.block
    packed = block.insert_arg(pack.result.type, argument.index)
    packed.name_hint = argument.name_hint
    size = shape_of(argument)[pack.packed_axis]
    unpacked = Build(contraction)(UnpackOp, packed, axis=pack.axis, tile=pack.tile, size=cast(int, size))
    argument.replace_all_uses_with(unpacked)
    block.erase_arg(argument)
    kernel.function_type = FunctionType.from_lists(block.arg_types, kernel.function_type.outputs.data)

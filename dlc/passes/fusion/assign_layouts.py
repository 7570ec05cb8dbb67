"""Layouts between kernels, as types: packed weights, and what is the same in every step of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, cast

from dlc.dialects.dl.base import element_type_of, of_equal_ops, rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.movement.packing import PackOp, UnpackOp
from dlc.dialects.dl.programs.control import Loop
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp, empty_kernel
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.dialects.sizes import symbol
from dlc.dims import is_static, substitute
from dlc.ir import Block, BlockArgument, Context, FunctionType, ModuleOp, NameLoc, NoneAttr, SSAValue, StringAttr, ops_of
from dlc.passes.base import TargetPass
from dlc.passes.dl.contractions.fold_scales import weight_axes
from dlc.passes.dl.rewriting import program_blocks
from dlc.passes.fusion.panels import choose_panel


class _Packed(NamedTuple):
    """Which argument of a kernel is packed, and how."""

    argument: int
    axis: int
    tile: int


@dataclass(frozen=True)
class AssignLayoutsPass(TargetPass):
    """`assign-layouts{target="cpu"}`: weights of contractions are packed in panels of output channels.

        %y = dl.dispatch @conv(%x, %w);  dl.kernel @conv(%x, %w) { dl.conv %x, %w }
    →   %p = dl.pack %w {axis = 3, tile = 32};  %y = dl.dispatch @conv(%x, %p)
        dl.kernel @conv(%x, %p) { %w = dl.unpack %p {axis = 3, tile = 32, size = 64}; dl.conv %x, %w }

    A panel lies in memory in the order in which the innermost loop reads it. The pack is an expression of weights, evaluated
    once. Where the operand is no weight but the same in every step of a loop, a kernel before the loop packs it. Weights of
    grouped convolutions stay as they are: their vectors run along the groups.

    Requires that all dispatches of a kernel give it weights in the same places, and that a kernel in a loop has one dispatch,
    so run it before `dedupe-kernels`.
    """

    name = "assign-layouts"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = {k.symbol: k for k in op.ops if isinstance(k, KernelOp)}
        constant = WeightExpressions()
        packed: dict[str, list[_Packed]] = {}
        for block in program_blocks(op):
            for dispatch in ops_of(block, DispatchOp):
                if dispatch.symbol not in packed:
                    packed[dispatch.symbol] = self._pack_weights(op, dispatch, kernels[dispatch.symbol], constant)
                    continue
                for argument, axis, tile in packed[dispatch.symbol]:
                    pack = PackOp.make(dispatch.arguments[argument], axis=axis, tile=tile)
                    dispatch.operands[argument] = Build(dispatch).insert(pack).results[0]

    def _pack_weights(
        self, module: ModuleOp, dispatch: DispatchOp, kernel: KernelOp, constant: WeightExpressions
    ) -> list[_Packed]:
        """Packs what a kernel is given by its first dispatch; where others have to do the same."""
        made: list[_Packed] = []
        weights = [(c, k) for c in kernel.body.block.ops if isinstance(c, Contraction) for k in range(1, len(c.operands))]
        for contraction, k in weights:
            argument = contraction.operands[k]
            if not isinstance(argument, BlockArgument) or not argument.has_one_use():
                continue
            weight = dispatch.arguments[argument.index]
            axis = panel_axis(contraction, k)
            loop = None if weight in constant else _loop_around(dispatch, weight)
            if (weight not in constant and loop is None) or axis is None or 0 in shape_of(weight):
                continue
            tile = self._panel(contraction, kernel.representative)
            if loop is None:
                pack = PackOp.make(weight, axis=axis, tile=tile)
                packed = Build(dispatch).insert(pack).results[0]
            else:
                pack = PackOp.make(BlockArgument(weight.type, Block(), 0), axis=axis, tile=tile)
                packed = _made_before(loop, pack, weight, dispatch, module)
            dispatch.operands[argument.index] = packed
            made.append(_Packed(argument.index, axis, tile))
            _unpack_argument(kernel, argument, contraction, pack)
        return made

    def _panel(self, contraction: Contraction, sizes: Sequence[int]) -> int:
        target, result = self.target, contraction.results[0]
        known = {symbol(k): size for k, size in enumerate(sizes)}
        *rows, channels = (int(substitute(s, known)) for s in shape_of(result))
        # Sums of narrower types are kept in four bytes.
        width = max(4, numpy_dtype(element_type_of(result)).itemsize)
        expands, sums = contraction.expands_weights, contraction.sums_in_steps
        return choose_panel(channels, prod(rows), target.lanes(width), target, expands, sums)


@of_equal_ops
def panel_axis(contraction: Contraction, k: int) -> int | None:
    """The axis of operand k that becomes the result's last one; None if it is split into groups, or not there."""
    if contraction.structure().views[k] != shape_of(contraction.operands[k]):
        return None
    return weight_axes(contraction, k).get(rank_of(contraction.results[0]) - 1)


def _loop_around(dispatch: DispatchOp, value: SSAValue) -> Loop | None:
    """The outermost loop around a dispatch that a value of known sizes is made before; None if it is made in the innermost."""
    found: Loop | None = None
    home = value.owner if isinstance(value.owner, Block) else value.owner.parent
    block = dispatch.parent
    while block is not None and block is not home:
        outer = block.parent_op()
        found = outer if isinstance(outer, Loop) else found
        block = outer.parent if outer is not None else None
    return found if is_static(shape_of(value)) else None


def _made_before(loop: Loop, pack: PackOp, value: SSAValue, dispatch: DispatchOp, module: ModuleOp) -> SSAValue:
    """What a kernel around `pack` makes of a value before a loop, for a dispatch in it."""
    symbols = {k.symbol for k in module.ops if isinstance(k, KernelOp)}
    name = next(n for n in (f"pack_{k}" for k in range(len(symbols) + 1)) if n not in symbols)
    kernel = empty_kernel(name, [value.type], [pack.result.type])
    pack.operands[0] = kernel.body.block.args[0]
    pack.location = NameLoc(StringAttr("#0"), NoneAttr())
    kernel.body.block.add_ops([pack, YieldOp([pack.result])])
    module.body.block.add_op(kernel)
    made = DispatchOp(name, [value], [pack.result.type])
    made.location = dispatch.location
    assert loop.parent is not None
    loop.parent.insert_op_before(made, loop)
    return made.outputs[0]


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

"""Recompute masks that depend only on positions, such as causal masks, inside attention kernels."""

from __future__ import annotations

import numpy as np

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MulOp, SubOp
from dlc.dialects.dl.base import element_type_of, number, shape_of, sizes, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import is_bool, is_integer
from dlc.dialects.dl.interfaces import Contraction, DataMovement, Elementwise
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.dl.scalar import limits
from dlc.ir import Context, FunctionType, ModuleOp, ModulePass, Operation, SSAValue, i32, ops_of
from dlc.passes.dl.index_ranges import compute_interval
from dlc.passes.dl.rewriting import erase_unused, program_blocks, splat


class MasksByPositionPass(ModulePass):
    """`masks-by-position`: rematerialize masks that depend only on positions inside attention kernels.

        %mask = dl.less_equal (dl.iota 0..9), (dl.reshape (dl.iota 0..9) to [9, 1])
        dl.dispatch @attention(%q, %k, %mask, %v)
      →
        dl.dispatch @attention(%q, %k, %v)
        dl.kernel @attention(%q, %k, %v) { %mask = dl.less_equal …;  … dl.select %mask, %scores, -∞ … }

    Such a mask is as large as the scores of a head, and each head would read it. The kernel computes indices in 32 bits,
    the lane size of the scores that the mask is applied to. Requires kernels with one dispatch each.
    """

    name = "masks-by-position"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = {k.symbol: k for k in op.ops if isinstance(k, KernelOp) and _is_attention(k)}
        for block in program_blocks(op) if kernels else ():
            for dispatch in ops_of(block, DispatchOp):
                if (kernel := kernels.get(dispatch.symbol)) is not None:
                    _rematerialize_masks(dispatch, kernel)


def _is_attention(kernel: KernelOp) -> bool:
    """Return whether a kernel has two contractions."""
    return sum(isinstance(inner, Contraction) for inner in kernel.body.block.ops) == 2


def _rematerialize_masks(dispatch: DispatchOp, kernel: KernelOp) -> None:
    """Copy the computation of a kernel's positional masks into the kernel."""
    block, first = kernel.body.block, kernel.body.block.first_op
    assert first is not None
    for k, value in reversed(list(enumerate(dispatch.arguments))):
        if (
            not is_bool(element_type_of(value))
            or sum(size != 1 for size in shape_of(value)) < 2
            or not _is_computed_from_indices(value)
        ):
            continue
        argument = block.args[k]
        rebuilt = _rebuild(value, DlBuilder(first), {})
        rebuilt.name_hint = argument.name_hint
        argument.replace_all_uses_with(rebuilt)
        block.erase_arg(argument)
        dispatch.operands = [v for i, v in enumerate(dispatch.operands) if i != k]
        if isinstance(value.owner, Operation):
            erase_unused([value.owner])
    kernel.function_type = FunctionType.from_lists(block.arg_types, kernel.function_type.outputs.data)


def _is_computed_from_indices(value: SSAValue) -> bool:
    """Return whether a value is computed only from iotas and constants, and all integers fit 32 bits."""
    op, element = value.owner, element_type_of(value)
    if not is_bool(element):
        low, high = limits(i32)
        first, last = compute_interval(value) if is_integer(element) else (low - 1, high)
        if not low <= first <= last <= high:
            return False
    if isinstance(op, IotaOp) or splat(value) is not None:
        return True
    if isinstance(op, ReshapeOp):
        # A reshape that only adds or removes axes of size 1 has the same indices.
        is_supported = [s for s in shape_of(op.x) if s != 1] == [s for s in shape_of(value) if s != 1]
    else:
        is_supported = isinstance(op, DataMovement | AddOp | SubOp | MulOp | CastOp) or (
            isinstance(op, Elementwise) and is_bool(element)
        )
    return isinstance(op, Operation) and is_supported and all(map(_is_computed_from_indices, op.operands))


def _rebuild(value: SSAValue, build: DlBuilder, rebuilt: dict[SSAValue, SSAValue]) -> SSAValue:
    """Recompute a value, with 32-bit integers, at the insertion point of `build`."""
    if value in rebuilt:
        return rebuilt[value]
    op, element = value.owner, element_type_of(value)
    if (constant := splat(value)) is not None:
        result = build.constant(np.asarray(constant), element if is_bool(element) else i32)
        result = result if not shape_of(value) else build(BroadcastToOp, result, shape=shape_of(value))
    elif isinstance(op, IotaOp):
        result = build(IotaOp, size=sizes(op.size), to=i32, start=number(op.start), step=number(op.step))
    elif isinstance(op, CastOp) and not is_bool(element):
        result = _rebuild(op.x, build, rebuilt)
    else:
        assert isinstance(op, Operation)
        copy = type(op).create(
            operands=[_rebuild(v, build, rebuilt) for v in op.operands],
            result_types=[tensor_type(shape_of(value), element if is_bool(element) else i32)],
            properties=op.properties,
        )
        result = build.insert(copy).results[0]
    rebuilt[value] = result
    return result

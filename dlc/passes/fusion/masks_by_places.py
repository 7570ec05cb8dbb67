"""Masks that places decide, such as a causal one: attention computes them where it asks for them."""

from __future__ import annotations

import numpy as np

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, MulOp, SubOp
from dlc.dialects.dl.base import element_type_of, number, shape_of, sizes, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.creation import IotaOp
from dlc.dialects.dl.dtypes import is_bool, is_integer
from dlc.dialects.dl.interfaces import Contraction, Elementwise, Movement
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.dl.scalar import limits
from dlc.ir import Context, FunctionType, ModuleOp, ModulePass, Operation, SSAValue, i32, ops_of
from dlc.passes.dl.index_ranges import interval_of
from dlc.passes.dl.rewriting import erase_unused, program_blocks, splat


class MasksByPlacesPass(ModulePass):
    """`masks-by-places`: kernels of attention compute masks that places decide, and read none.

        %seen = dl.less_equal (dl.iota 0..9), (dl.reshape (dl.iota 0..9) to [9, 1])
        dl.dispatch @attention(%q, %k, %seen, %v)
      →
        dl.dispatch @attention(%q, %k, %v)
        dl.kernel @attention(%q, %k, %v) { %seen = dl.less_equal …;  … dl.select %seen, %scores, -∞ … }

    Such a mask is as large as all scores of a head, and an array of it is read anew for each. Numbers are of 32 bits in
    kernels, as places are compared with scores of that size. Requires kernels with one dispatch each.
    """

    name = "masks-by-places"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = {k.symbol: k for k in op.ops if isinstance(k, KernelOp) and _is_attention(k)}
        for block in program_blocks(op) if kernels else ():
            for dispatch in ops_of(block, DispatchOp):
                if (kernel := kernels.get(dispatch.symbol)) is not None:
                    _bring(dispatch, kernel)


def _is_attention(kernel: KernelOp) -> bool:
    """Whether a kernel is of two contractions, between which a mask stands."""
    return sum(isinstance(inner, Contraction) for inner in kernel.body.block.ops) == 2


def _bring(dispatch: DispatchOp, kernel: KernelOp) -> None:
    """Puts into a kernel what makes those of its arguments that are masks by places."""
    block, first = kernel.body.block, kernel.body.block.first_op
    assert first is not None
    for k, value in reversed(list(enumerate(dispatch.arguments))):
        if not is_bool(element_type_of(value)) or sum(size != 1 for size in shape_of(value)) < 2 or not _is_by_places(value):
            continue
        argument = block.args[k]
        made = _made(value, Build(first), {})
        made.name_hint = argument.name_hint
        argument.replace_all_uses_with(made)
        block.erase_arg(argument)
        dispatch.operands = [v for i, v in enumerate(dispatch.operands) if i != k]
        if isinstance(value.owner, Operation):
            erase_unused([value.owner])
    kernel.function_type = FunctionType.from_lists(block.arg_types, kernel.function_type.outputs.data)


def _is_by_places(value: SSAValue) -> bool:
    """Whether a value is made of places and known numbers alone, all of which 32 bits hold."""
    op, element = value.owner, element_type_of(value)
    if not is_bool(element):
        low, high = limits(i32)
        first, last = interval_of(value) if is_integer(element) else (low - 1, high)
        if not low <= first <= last <= high:
            return False
    if isinstance(op, IotaOp) or splat(value) is not None:
        return True
    if isinstance(op, ReshapeOp):
        # Others are copies.
        moves = [s for s in shape_of(op.x) if s != 1] == [s for s in shape_of(value) if s != 1]
    else:
        moves = isinstance(op, Movement | AddOp | SubOp | MulOp | CastOp) or (isinstance(op, Elementwise) and is_bool(element))
    return isinstance(op, Operation) and moves and all(map(_is_by_places, op.operands))


def _made(value: SSAValue, b: Build, known: dict[SSAValue, SSAValue]) -> SSAValue:
    """The same value, with numbers of 32 bits, where `b` builds."""
    if value in known:
        return known[value]
    op, element = value.owner, element_type_of(value)
    if (constant := splat(value)) is not None:
        made = b.constant(np.asarray(constant), element if is_bool(element) else i32)
        made = made if not shape_of(value) else b(BroadcastToOp, made, shape=shape_of(value))
    elif isinstance(op, IotaOp):
        made = b(IotaOp, size=sizes(op.size), to=i32, start=number(op.start), step=number(op.step))
    elif isinstance(op, CastOp) and not is_bool(element):
        made = _made(op.x, b, known)
    else:
        assert isinstance(op, Operation)
        copy = type(op).create(
            operands=[_made(v, b, known) for v in op.operands],
            result_types=[tensor_type(shape_of(value), element if is_bool(element) else i32)],
            properties=op.properties,
        )
        made = b.insert(copy).results[0]
    known[value] = made
    return made

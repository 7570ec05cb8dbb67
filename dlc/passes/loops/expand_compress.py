"""`expand-compress`: compress vectors element by element, for targets without an instruction for it."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.compress import CompressOp
from dlc.dialects.dl.interfaces import storage_type
from dlc.ir import AffineMap, Context, SSAValue, erase_op, func, memref, walk_ops
from dlc.passes.base import KernelPass, TargetPass
from dlc.passes.kernel_values import element_of, shape_of_vector
from dlc.passes.structured import ConstantPool, OpBuilder


@dataclass(frozen=True)
class ExpandCompressPass(TargetPass, KernelPass):
    """Expand `vector.compress` to a loop over the lanes, unless the target permutes a vector by a mask.

      %y, %n = vector.compress %mask, %x : vector<8xi32>
    →
      %n = scf.for %i = 0 to 8 iter_args(%end = 0) {
        memref.store %x[%i], %selected[%end];  scf.yield (%end + 1 where %mask[%i], else %end) }
      %y = vector.transfer_read %selected[0]
    """

    name = "expand-compress"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        if not self.target.can_compress:
            for op in list(walk_ops(kernel, CompressOp)):
                _expand(op, ConstantPool(kernel))


def _expand(op: CompressOp, constants: ConstantPool) -> None:
    block = op.parent
    assert block is not None
    builder = OpBuilder(constants, block, op.location, op)
    identity, (lanes,) = AffineMap.identity(1), shape_of_vector(op.source.type)

    def in_memory(value: SSAValue) -> SSAValue:
        array = builder.alloca(storage_type(element_of(value.type)), (lanes,))
        builder.transfer_write(value, array, [0], identity)
        return array

    mask, source = in_memory(op.mask), in_memory(op.source)
    element = element_of(op.source.type)
    selected = builder.alloca(storage_type(element), (lanes,))
    loop = builder.loop(0, lanes, 1, [constants.index(0)], name="lane")
    body = builder.at_block_end(loop.body.block)
    lane, end = loop.body.block.args

    def load(array: SSAValue, like: SSAValue) -> SSAValue:
        return body.op(memref.LoadOp.create(operands=[array, lane], result_types=[element_of(like.type)]))

    body.insert(memref.StoreOp.create(operands=[load(source, op.source), selected, end]))
    body.yield_(body.select(load(mask, op.mask), body.add(end, 1), end))
    result = builder.transfer_read(selected, [0], (lanes,), identity)
    op.result.replace_all_uses_with(result)
    op.count.replace_all_uses_with(loop.results[0])
    erase_op(op)

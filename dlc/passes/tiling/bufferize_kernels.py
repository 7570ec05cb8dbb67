"""`bufferize-kernels`: replace the tensors of a kernel by buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from dlc.dialects.dl.base import element_type_of, rank_of, shape_of
from dlc.dialects.sizes import argument_size_attributes, mixed_sizes, sizes_of, strides_of
from dlc.errors import UnsupportedError
from dlc.ir import (
    ArrayAttr,
    Block,
    BlockArgument,
    Context,
    FunctionType,
    Operation,
    SSAValue,
    TensorType,
    erase_op,
    func,
    linalg,
    memref,
    tensor,
)
from dlc.passes.base import KernelPass
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.tiling.affine_access import root_of
from dlc.passes.tiling.buffer_views import copy, fill
from dlc.passes.tiling.structured_ops import iterator_extents
from dlc.passes.types import memref_of, memref_type, reshaped_strides
from dlc.shapes.dims import Size, is_static, row_major


@dataclass(frozen=True)
class BufferizeKernelsPass(KernelPass):
    """Turn a kernel in destination-passing style on tensors into one on buffers.

        func.func @k(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
          %r = linalg.generic … ins(%x) outs(%y) { … } -> tensor<8xf32>
          func.return %r }
      →
        func.func @k(%x: memref<8xf32>, %y: memref<8xf32>) {
          linalg.generic … ins(%x) outs(%y) { … }
          func.return }

    The result of a structured op uses the buffer of its `outs` operand; `tensor.empty` becomes a local buffer; slices
    and reshapes become views. Ops with an empty iteration space are erased. Requires straight-line code that writes each
    destination once. Afterwards a kernel has memrefs only.
    """

    name = "bufferize-kernels"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        _Bufferizer(kernel).run()


class _Bufferizer:
    def __init__(self, kernel: func.FuncOp) -> None:
        self.kernel = kernel
        self.constants = ConstantPool(kernel)
        self.buffers: dict[SSAValue, SSAValue] = {}

    def run(self) -> None:
        block = self.kernel.body.block
        _place_dynamic_locals(block)
        num_results = len(self.kernel.function_type.outputs)
        tensors = [a for a in block.args if isinstance(a.type, TensorType)]
        outputs = tensors[len(tensors) - num_results :]
        size_attributes = [argument_size_attributes(shape_of(a) if a in tensors else ()) for a in block.args]
        if any(attributes.data for attributes in size_attributes):
            self.kernel.properties["arg_attrs"] = ArrayAttr(size_attributes)
        for arg in list(block.args):
            if isinstance(arg.type, TensorType):
                # The ops still have tensor operands; `rewrite` replaces them by the buffers of this map.
                cast(Any, arg)._type = memref_type(element_type_of(arg), shape_of(arg))
            self.buffers[arg] = arg
        for op in list(block.ops):
            self.rewrite(op, OpBuilder(self.constants, block, op.location, anchor=op), outputs)
        types = [a.type for a in block.args]
        self.kernel.properties["function_type"] = FunctionType.from_lists(types, [])
        for op in reversed(list(block.ops)):
            if any(isinstance(r.type, TensorType) for r in op.results):
                erase_op(op, is_unused=False)
        for op in list(block.ops):
            if isinstance(op, linalg.GenericOp | linalg.FillOp) and 0 in iterator_extents(op):
                erase_op(op)

    def rewrite(self, op: Operation, builder: OpBuilder, outputs: Sequence[SSAValue]) -> None:
        match op:
            case tensor.EmptyOp():
                (result,) = op.results
                self.set_buffer(op, builder.alloca(element_type_of(result), shape_of(result)))
            case linalg.GenericOp():
                self.set_buffer(op, self.generic(op, builder))
            case linalg.FillOp():
                destination = self.buffers[op.outputs[0]]
                fill(builder, op.inputs[0], destination)
                self.set_buffer(op, destination)
            case tensor.ExtractSliceOp():
                self.set_buffer(op, _slice(builder, self.buffers[op.source], op))
            case tensor.InsertSliceOp():
                self.insert_slice(op, builder)
            case tensor.ExpandShapeOp() | tensor.CollapseShapeOp():
                self.set_buffer(op, _reshape(builder, self.buffers[op.operands[0]], shape_of(op.results[0])))
            case func.ReturnOp():
                for value, output in zip(op.operands, outputs, strict=True):
                    if self.buffers[value] is not output:
                        raise UnsupportedError(
                            f"@{self.kernel.sym_name.data} returns a value outside of its destination argument; write it there"
                        )
                builder.insert(func.ReturnOp())
                erase_op(op, is_unused=False)
            case _ if any(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)):
                raise UnsupportedError(f"bufferize-kernels: {op.name} on tensors cannot be bufferized")
            case _:
                pass

    def set_buffer(self, op: Operation, buffer: SSAValue) -> None:
        """Record the buffer of an op's result."""
        if buffer.name_hint is None:
            buffer.name_hint = op.results[0].name_hint
        self.buffers[op.results[0]] = buffer

    def generic(self, op: linalg.GenericOp, builder: OpBuilder) -> SSAValue:
        operands = [self.buffers.get(v, v) for v in op.operands]
        body = op.detach_region(op.body)
        for inner in list(body.block.ops):
            if isinstance(inner, tensor.ExtractOp):
                load = memref.LoadOp.get(self.buffers[inner.tensor], list(inner.indices))
                load.location = inner.location
                body.block.insert_op_before(load, inner)
                inner.results[0].replace_all_uses_with(load.res)
                erase_op(inner)
        builder.insert(
            linalg.GenericOp.create(operands=operands, properties=op.properties, attributes=op.attributes, regions=[body])
        )
        return operands[-1]

    def insert_slice(self, op: tensor.InsertSliceOp, builder: OpBuilder) -> None:
        """Copy a slice into its destination, unless it was computed there."""
        source, whole = self.buffers[op.source], self.buffers[op.dest]
        destination = _slice(builder, whole, op)
        # Two views of one buffer with the same offset and strides are the same elements.
        is_in_place = root_of(source) == root_of(destination) and strides_of(source) == strides_of(destination)
        if not is_in_place:
            _copy(builder, source, destination)
        elif destination is not source and not destination.first_use:
            owner = destination.owner
            assert isinstance(owner, Operation)
            erase_op(owner)
        self.set_buffer(op, whole)


def _slice(builder: OpBuilder, source: SSAValue, op: tensor.ExtractSliceOp | tensor.InsertSliceOp) -> SSAValue:
    """Return the strided view of a buffer that a slice op selects."""
    offsets = mixed_sizes(op.static_offsets, op.offsets)
    sizes = mixed_sizes(op.static_sizes, op.sizes)
    steps = mixed_sizes(op.static_strides, op.strides)
    slice_ = op.result if isinstance(op, tensor.ExtractSliceOp) else op.source
    if len(offsets) != rank_of(slice_) or any(isinstance(n, int) and n < 0 for n in (*offsets, *sizes)):
        raise UnsupportedError(
            f"bufferize-kernels: {op.name} must keep the rank, and its offsets and sizes must not be negative"
        )
    if all(s == 1 for s in steps):
        return builder.subview(source, [builder.size(o) for o in offsets], sizes)
    root, offset = root_of(source)
    strides = strides_of(source)
    for o, s in zip(offsets, strides, strict=True):
        offset = offset + o * s
    return builder.reinterpret(root, offset, sizes, tuple(s * k for s, k in zip(strides, steps, strict=True)))


def _reshape(builder: OpBuilder, source: SSAValue, shape: tuple[Size, ...]) -> SSAValue:
    """Return the elements of a buffer in another shape: a view, or a copy if no strides describe it."""
    t = memref_of(source)
    strides = row_major(shape) if 0 in shape else reshaped_strides(sizes_of(source), strides_of(source), shape)
    if strides is None:
        contiguous = builder.alloca(t.element_type, sizes_of(source))
        _copy(builder, source, contiguous)
        source, strides = contiguous, row_major(shape)
    root, offset = root_of(source)
    return builder.reinterpret(root, offset, shape, strides)


def _copy(builder: OpBuilder, source: SSAValue, destination: SSAValue) -> None:
    """Copy a buffer into another one of the same shape."""
    axes = range(len(memref_of(destination).get_shape()))
    copy(builder, (source, axes), (destination, axes))


def _place_dynamic_locals(block: Block) -> None:
    """Store a local tensor of symbolic size in the destination of the elementwise op that reads it last.

        %e = linalg.generic ins(%x) outs(%empty) { exp }
        %s = linalg.generic ins(%e) outs(%zero) { addf }
        %y = linalg.generic ins(%e, %s) outs(%out) { divf }
      →
        %e = linalg.generic ins(%x) outs(%out) { exp };  …;  %y = linalg.generic ins(%e, %s) outs(%e) { divf }

    A kernel cannot allocate memory of dynamic size. An iteration of the last op overwrites only the element that it has
    read before.
    """
    position = {op: k for k, op in enumerate(block.ops)}
    for last in reversed(list(block.ops)):
        if not isinstance(last, linalg.GenericOp) or len(last.outputs) != 1 or last.body.block.args[-1].first_use:
            continue
        (out,) = last.outputs
        if is_static(shape_of(out)) or not isinstance(out, BlockArgument) or len(list(out.uses)) != 1:
            continue
        for value in last.inputs:
            if (producer := _producer(value, last)) is None:
                continue
            readers = [use.operation for use in value.uses]
            if all(isinstance(reader, linalg.GenericOp) and position[reader] <= position[last] for reader in readers):
                producer.operands[len(producer.operands) - 1] = out
                last.operands[len(last.operands) - 1] = value
                break


def _producer(value: SSAValue, last: linalg.GenericOp) -> linalg.GenericOp | None:
    """Return the op that computes `value` in a local tensor, if `last` reads it with the index of its own output."""
    producer, (out,) = value.owner, last.outputs
    if not isinstance(producer, linalg.GenericOp) or value.type != out.type or len(producer.outputs) != 1:
        return None
    if not isinstance(producer.outputs[0].owner, tensor.EmptyOp) or producer.body.block.args[-1].first_use:
        return None
    maps = [m.data for m in last.indexing_maps]
    read_maps = [m for operand, m in zip(last.inputs, maps, strict=False) if operand is value]
    return producer if read_maps == [maps[-1]] else None

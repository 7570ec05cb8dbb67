"""`bufferize-kernels`: tensors of a kernel become buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from dlc.dialects.dl.base import element_type_of, rank_of, shape_of
from dlc.dialects.sizes import mixed_sizes, say_sizes, sizes_of, strides_of
from dlc.dims import Size, row_major
from dlc.errors import UnsupportedError
from dlc.ir import (
    AffineMap,
    AffineMapAttr,
    ArrayAttr,
    Block,
    Context,
    DenseArrayBase,
    FunctionType,
    IntegerType,
    IteratorTypeAttr,
    Operation,
    Region,
    SSAValue,
    TensorType,
    func,
    linalg,
    memref,
    tensor,
)
from dlc.passes.base import KernelPass
from dlc.passes.structured import Constants, Place
from dlc.passes.tiling.access import root_of
from dlc.passes.tiling.open_locals import place_open_locals
from dlc.passes.types import memref_of, memref_type, reshaped_strides


@dataclass(frozen=True)
class BufferizeKernelsPass(KernelPass):
    """Turns a kernel in destination-passing style on tensors into one on buffers.

        func.func @k(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
          %r = linalg.generic … ins(%x) outs(%y) { … } -> tensor<8xf32>
          func.return %r }
      →
        func.func @k(%x: memref<8xf32>, %y: memref<8xf32>) {
          linalg.generic … ins(%x) outs(%y) { … }
          func.return }

    Each result of a structured op lives where its `outs` operand lives; `tensor.empty` is a local buffer, slices and
    reshapes are views. Requires straight-line code whose destinations are each overwritten once. Leaves memrefs only.
    """

    name = "bufferize-kernels"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        _Bufferizer(kernel).run()


class _Bufferizer:
    def __init__(self, kernel: func.FuncOp) -> None:
        self.kernel = kernel
        self.constants = Constants(kernel)
        self.buffers: dict[SSAValue, SSAValue] = {}

    def run(self) -> None:
        block = self.kernel.body.block
        place_open_locals(block)
        results = len(self.kernel.function_type.outputs)
        tensors = [a for a in block.args if isinstance(a.type, TensorType)]
        outputs = tensors[len(tensors) - results :]
        said = [say_sizes(shape_of(a) if a in tensors else ()) for a in block.args]
        if any(attributes.data for attributes in said):
            self.kernel.properties["arg_attrs"] = ArrayAttr(said)
        for arg in list(block.args):
            if isinstance(arg.type, TensorType):
                # The operations still hold tensor operands; each is rewritten below from this map.
                cast(Any, arg)._type = memref_type(element_type_of(arg), shape_of(arg))
            self.buffers[arg] = arg
        for op in list(block.ops):
            self.rewrite(op, Place(self.constants, block, op.location, anchor=op), outputs)
        types = [a.type for a in block.args]
        self.kernel.properties["function_type"] = FunctionType.from_lists(types, [])
        for op in reversed(list(block.ops)):
            if any(isinstance(r.type, TensorType) for r in op.results):
                op.detach()
                op.erase(safe_erase=False)

    def rewrite(self, op: Operation, place: Place, outputs: Sequence[SSAValue]) -> None:
        match op:
            case tensor.EmptyOp():
                (result,) = op.results
                self.set(op, place.alloca(element_type_of(result), shape_of(result)))
            case linalg.GenericOp():
                self.set(op, self.generic(op, place))
            case linalg.FillOp():
                target = self.buffers[op.outputs[0]]
                place.insert(_fill(op.inputs[0], target, op))
                self.set(op, target)
            case tensor.ExtractSliceOp():
                self.set(op, _slice(place, self.buffers[op.source], op))
            case tensor.InsertSliceOp():
                self.insert_slice(op, place)
            case tensor.ExpandShapeOp() | tensor.CollapseShapeOp():
                self.set(op, _reshape(place, self.buffers[op.operands[0]], shape_of(op.results[0])))
            case func.ReturnOp():
                for value, output in zip(op.operands, outputs, strict=True):
                    if self.buffers[value] is not output:
                        raise UnsupportedError(f"@{self.kernel.sym_name.data} does not return its destination; write it there")
                place.insert(func.ReturnOp())
                op.detach()
                op.erase(safe_erase=False)
            case _ if any(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)):
                raise UnsupportedError(f"bufferize-kernels: {op.name} on tensors has no buffer form")
            case _:
                pass

    def set(self, op: Operation, buffer: SSAValue) -> None:
        if buffer.name_hint is None:
            buffer.name_hint = op.results[0].name_hint
        self.buffers[op.results[0]] = buffer

    def generic(self, op: linalg.GenericOp, place: Place) -> SSAValue:
        operands = [self.buffers.get(v, v) for v in op.operands]
        body = op.detach_region(op.body)
        for inner in list(body.block.ops):
            if isinstance(inner, tensor.ExtractOp):
                load = memref.LoadOp.get(self.buffers[inner.tensor], list(inner.indices))
                load.location = inner.location
                body.block.insert_op_before(load, inner)
                inner.results[0].replace_all_uses_with(load.res)
                inner.detach()
                inner.erase()
        place.insert(
            linalg.GenericOp.create(operands=operands, properties=op.properties, attributes=op.attributes, regions=[body])
        )
        return operands[-1]

    def insert_slice(self, op: tensor.InsertSliceOp, place: Place) -> None:
        """A part computed in place needs nothing; one computed elsewhere is copied."""
        source, target = self.buffers[op.source], self.buffers[op.dest]
        window = _slice(place, target, op)
        # Two views of one buffer at the same offset and strides are one window.
        same = root_of(source) == root_of(window) and strides_of(source) == strides_of(window)
        if not same:
            place.insert(_copy(source, window))
        elif window is not source and not window.first_use:
            owner = window.owner
            assert isinstance(owner, Operation)
            owner.detach()
            owner.erase()
        self.set(op, target)


def _slice(place: Place, source: SSAValue, op: tensor.ExtractSliceOp | tensor.InsertSliceOp) -> SSAValue:
    """The window of a buffer that a slice op names, steps included."""
    offsets = mixed_sizes(op.static_offsets, op.offsets)
    sizes = mixed_sizes(op.static_sizes, op.sizes)
    steps = mixed_sizes(op.static_strides, op.strides)
    sliced = op.result if isinstance(op, tensor.ExtractSliceOp) else op.source
    if len(offsets) != rank_of(sliced) or any(isinstance(n, int) and n < 0 for n in (*offsets, *sizes)):
        raise UnsupportedError(f"bufferize-kernels: {op.name} must keep its rank, and begin inside of its tensor")
    if all(s == 1 for s in steps):
        return place.subview(source, [place.size(o) for o in offsets], sizes)
    root, offset = root_of(source)
    strides = strides_of(source)
    for o, s in zip(offsets, strides, strict=True):
        offset = offset + o * s
    return place.reinterpret(root, offset, sizes, tuple(s * k for s, k in zip(strides, steps, strict=True)))


def _reshape(place: Place, source: SSAValue, shape: tuple[Size, ...]) -> SSAValue:
    """The elements of a buffer in another shape: a view, or a copy if their places have no such strides."""
    t = memref_of(source)
    strides = row_major(shape) if 0 in shape else reshaped_strides(sizes_of(source), strides_of(source), shape)
    if strides is None:
        copy = place.alloca(t.element_type, sizes_of(source))
        place.insert(_copy(source, copy))
        source, strides = copy, row_major(shape)
    root, offset = root_of(source)
    return place.reinterpret(root, offset, shape, strides)


def _fill(value: SSAValue, target: SSAValue, op: linalg.FillOp) -> linalg.FillOp:
    """linalg.fill on a buffer, with the region of the op on tensors."""
    region = op.detach_region(op.regions[0]) if op.regions else Region(Block())
    return linalg.FillOp.create(operands=[value, target], properties=op.properties, attributes=op.attributes, regions=[region])


def _copy(source: SSAValue, target: SSAValue) -> linalg.GenericOp:
    t = memref_of(target)
    rank = len(t.get_shape())
    body = Block(arg_types=[t.element_type, t.element_type])
    body.add_op(linalg.YieldOp(body.args[0]))
    identity = linalg.GenericOp(
        [source],
        [target],
        Region(body),
        [AffineMapAttr(AffineMap.identity(rank))] * 2,
        [IteratorTypeAttr.parallel()] * rank,
    )
    identity.properties["operandSegmentSizes"] = DenseArrayBase.from_list(IntegerType(32), [1, 1])
    return identity

"""Operators that sort or reverse along an axis."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.ir import i64
from dlc.shapes.dims import Size, are_equal

table = ConverterTable()


@table("TopK")
def top_k(node: OnnxNode) -> list[ImportedValue]:
    emit, x = node.emit, node[0]
    node.ignore_attributes("sorted")  # any order is valid without it
    axis = node.axis(node.integer("axis", -1), x.rank)
    size, count = x.shape[axis], _count(node, x.shape[axis])
    if isinstance(count, int) and (count < 0 or (isinstance(size, int) and count > size)):
        raise ModelError(f"{node.description}: k = {count} is out of range for an axis of size {size}")
    indices = emit(dl.ArgsortOp, x, axis=axis, descending=node.flag("largest", True), count=(count,))
    return [emit(dl.GatherElementsOp, x, indices, axis=axis), indices]


def _count(node: OnnxNode, size: Size) -> Size:
    """Return `k`, the number of elements selected from `size`."""
    if node.opset < 10:
        return node.integer("k")
    emit, k = node.emit, node[1]
    if k.constant_value is not None:
        (count,) = node.sizes(1, "k")
        return count
    number, maximum = emit.cast(emit.reshape(k, ()), i64), emit.sizes(size)
    is_size = emit(dl.AndOp, emit(dl.GreaterEqualOp, number, emit.scalar(0, number)), emit(dl.LessEqualOp, number, maximum))
    emit.require(is_size, f"{node.description}: k = {{}} is out of range for an axis of size {{}}", number, maximum)
    return emit.scalar_as_size(number, size)


@table("ReverseSequence")
def reverse_sequence(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    batch, time = (node.axis(node.integer(f"{name}_axis", k), x.rank) for k, name in ((1, "batch"), (0, "time")))
    if node[1].rank != 1 or not are_equal(node[1].shape[0], x.shape[batch]):
        raise ModelError(f"{node.description}: lengths of shape {list(node[1].shape)} do not match {x.shape[batch]} sequences")

    def reshape_to_axis(value: ImportedValue, axis: int) -> ImportedValue:
        return emit.reshape(value, [value.shape[0] if a == axis else 1 for a in range(x.rank)])

    lengths, steps = reshape_to_axis(emit.cast(node[1], i64), batch), reshape_to_axis(emit.iota(x.shape[time]), time)
    # Elements up to the length of a sequence are reversed, later ones unchanged.
    mirrored = emit(dl.SubOp, emit(dl.SubOp, lengths, emit.scalar(1, lengths)), steps)
    indices = emit(dl.SelectOp, emit(dl.LessOp, steps, lengths), mirrored, steps)
    return emit(dl.GatherElementsOp, x, emit.broadcast(indices, x.shape), axis=time)

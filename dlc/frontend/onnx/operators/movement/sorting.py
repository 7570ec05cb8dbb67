"""Operators that order the elements of an axis."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dims import Size
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.frontend.symbolic import equal
from dlc.ir import i64

table = Table()


@table("TopK")
def top_k(node: Node) -> list[Value]:
    emit, x = node.emit, node[0]
    node.ignore("sorted")  # the order is free then: sorted will do
    axis = node.axis(node.integer("axis", -1), x.rank)
    size, count = x.shape[axis], _count(node, x.shape[axis])
    if isinstance(count, int) and (count < 0 or (isinstance(size, int) and count > size)):
        raise ModelError(f"{node.place}: the first {count} of {size} elements")
    places = emit(dl.ArgsortOp, x, axis=axis, descending=node.flag("largest", True), count=(count,))
    return [emit(dl.GatherElementsOp, x, places, axis=axis), places]


def _count(node: Node, size: Size) -> Size:
    """How many of `size` elements are asked for."""
    if node.opset < 10:
        return node.integer("k")
    emit, k = node.emit, node[1]
    if k.known is not None:
        (count,) = node.sizes(1, "k")
        return count
    number, most = emit.cast(emit.reshape(k, ()), i64), emit.sizes(size)
    is_size = emit(dl.AndOp, emit(dl.GreaterEqualOp, number, emit.scalar(0, number)), emit(dl.LessEqualOp, number, most))
    emit.require(is_size, f"{node.place}: the first {{}} of {{}} elements", number, most)
    return emit.counted(number, size)


@table("ReverseSequence")
def reverse_sequence(node: Node) -> Value:
    emit, x = node.emit, node[0]
    batch, time = (node.axis(node.integer(f"{name}_axis", k), x.rank) for k, name in ((1, "batch"), (0, "time")))
    if node[1].rank != 1 or not equal(node[1].shape[0], x.shape[batch]):
        raise ModelError(f"{node.place}: lengths of shape {list(node[1].shape)} for {x.shape[batch]} sequences")

    def along(v: Value, axis: int) -> Value:
        return emit.reshape(v, [v.shape[0] if a == axis else 1 for a in range(x.rank)])

    lengths, steps = along(emit.cast(node[1], i64), batch), along(emit.iota(x.shape[time]), time)
    # Before its length a sequence is read from its end, after it as it is.
    mirrored = emit(dl.SubOp, emit(dl.SubOp, lengths, emit.scalar(1, lengths)), steps)
    places = emit(dl.SelectOp, emit(dl.LessOp, steps, lengths), mirrored, steps)
    return emit(dl.GatherElementsOp, x, emit.broadcast(places, x.shape), axis=time)

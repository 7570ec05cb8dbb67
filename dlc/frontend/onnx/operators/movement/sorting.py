"""Operators that order the elements of an axis."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.registry import Table
from dlc.ir import i64

table = Table()


@table("TopK")
def top_k(node: Node) -> list[Value]:
    emit, x = node.emit, node[0]
    node.ignore("sorted")  # the order is free then: sorted will do
    axis = node.axis(node.integer("axis", -1), x.rank)
    count = node.integer("k") if node.opset < 10 else int(node.number(1, "k"))
    size = x.shape[axis]
    if count < 0 or (isinstance(size, int) and count > size):
        raise ModelError(f"{node.place}: the first {count} of {size} elements")
    places = emit(dl.ArgsortOp, x, axis=axis, descending=node.flag("largest", True), count=count)
    return [emit(dl.GatherElementsOp, x, places, axis=axis), places]


@table("ReverseSequence")
def reverse_sequence(node: Node) -> Value:
    emit, x = node.emit, node[0]
    batch, time = (node.axis(node.integer(f"{name}_axis", k), x.rank) for k, name in ((1, "batch"), (0, "time")))

    def along(v: Value, axis: int) -> Value:
        return emit.reshape(v, [v.shape[0] if a == axis else 1 for a in range(x.rank)])

    lengths, steps = along(emit.cast(node[1], i64), batch), along(emit.iota(x.shape[time]), time)
    # Before its length a sequence is read from its end, after it as it is.
    mirrored = emit(dl.SubOp, emit(dl.SubOp, lengths, emit.scalar(1, lengths)), steps)
    places = emit(dl.SelectOp, emit(dl.LessOp, steps, lengths), mirrored, steps)
    return emit(dl.GatherElementsOp, x, emit.broadcast(places, x.shape), axis=time)

"""Operators whose results have as many entries as the data has."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import PropertyValue
from dlc.dialects.dl.dtypes import is_bool
from dlc.dims import product
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.onnx.node import Node
from dlc.frontend.onnx.operators import text
from dlc.frontend.onnx.registry import Table
from dlc.frontend.onnx.values import Text
from dlc.ir import Attribute, Block, f32, i64

table = Table()


def _selected(node: Node, op: type[dl.Selection], *operands: Value, **properties: PropertyValue | None) -> tuple[Value, ...]:
    """The results of a selection, of a size that the program finds when it runs; known if the operands are."""
    size = node.emit.new_size(op.name.removeprefix("dl."))
    probe = op.make(*Block(arg_types=[v.type for v in operands]).args, size=(size,), **properties)
    known = [v.known for v in operands if v.known is not None and v.known.dtype != object]
    if len(known) == len(operands):
        return tuple(node.emit.constant(result) for result in probe.evaluate(*known))
    # Of what has no elements nothing is selected.
    return node.emit.all(op, *operands, size=(0 if probe.most == 0 else size,), **properties)


@table("NonZero")
def nonzero(node: Node) -> Value:
    emit, x = node.emit, node[0]
    if x.rank == 0:
        x = emit.reshape(x, (1,))  # as ONNX Runtime has it
    mask = x if is_bool(x.element_type) else emit(dl.NotEqualOp, x, emit.scalar(0, x))
    return _selected(node, dl.NonzeroOp, mask)[0]


@table("Compress")
def compress(node: Node) -> Value:
    emit, x, condition = node.emit, node[0], node[1]
    if node.has("axis"):
        axis = node.axis(node.integer("axis"), x.rank)
    else:
        x, axis = emit.reshape(x, (product(x.shape),)), 0
    if condition.rank != 1 or not is_bool(condition.element_type):
        raise ModelError(f"{node.place}: its condition must be bools of rank 1, got {condition.type}")
    if x.shape[axis] == 0:
        return x
    (places,) = _selected(node, dl.NonzeroOp, condition)
    return emit(dl.GatherOp, x, emit.reshape(places, (places.shape[1],)), axis=axis)


@table("Unique")
def unique(node: Node) -> tuple[Value, ...]:
    if isinstance(node[0], Text):
        return text.unique(node)
    axis = node.axis(node.integer("axis"), node[0].rank) if node.has("axis") else None
    return _selected(node, dl.UniqueOp, node[0], axis=axis, keep_order=not node.flag("sorted", True))


@table("NonMaxSuppression", since=10)
def non_max_suppression(node: Node) -> Value:
    def setting(k: int, default: float, element_type: Attribute) -> Value:
        value = node.get(k)
        return node.emit.scalar(default, element_type) if value is None else node.emit.reshape(value, ())

    # Without a number of boxes there are none, without a threshold all scores count.
    settings = (setting(2, 0, i64), setting(3, 0.0, f32), setting(4, float("-inf"), f32))
    center_point = node.flag("center_point_box")
    return _selected(node, dl.NonMaxSuppressionOp, node[0], node[1], *settings, center_point=center_point)[0]


@table("ImageDecoder", since=20)
def image_decoder(node: Node) -> Value:
    """A picture in the bytes of a file."""
    emit, order = node.emit, node.choice("pixel_format", "RGB", ("RGB", "BGR", "Grayscale"))
    size = (emit.new_size("height"), emit.new_size("width"))
    pixels = emit.unfolded(dl.DecodePictureOp, node[0], size=size, gray=order == "Grayscale")[0]
    return emit(dl.ReverseOp, pixels, axes=(2,)) if order == "BGR" else pixels

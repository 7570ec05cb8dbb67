"""Operators with data-dependent result sizes."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import PropertyValue
from dlc.dialects.dl.dtypes import is_bool
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators import strings
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.values import StringTensor
from dlc.ir import Attribute, Block, f32, i64
from dlc.shapes.dims import product

table = ConverterTable()


def _select(
    node: OnnxNode, op: type[dl.SelectionOp], *operands: ImportedValue, **properties: PropertyValue | None
) -> tuple[ImportedValue, ...]:
    """Emit a selection with a data-dependent size, or evaluate it if the operands are constant."""
    size = node.emit.new_size(op.name.removeprefix("dl."))
    probe = op.make(*Block(arg_types=[v.type for v in operands]).args, size=(size,), **properties)
    constants = [v.constant_value for v in operands if v.constant_value is not None and v.constant_value.dtype != object]
    if len(constants) == len(operands):
        return tuple(node.emit.constant(result) for result in probe.evaluate(*constants))
    # An empty operand selects nothing.
    return node.emit.all_results(op, *operands, size=(0 if probe.max_size == 0 else size,), **properties)


@table("NonZero")
def nonzero(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    if x.rank == 0:
        x = emit.reshape(x, (1,))  # like ONNX Runtime
    mask = x if is_bool(x.element_type) else emit(dl.NotEqualOp, x, emit.scalar(0, x))
    return _select(node, dl.NonzeroOp, mask)[0]


@table("Compress")
def compress(node: OnnxNode) -> ImportedValue:
    emit, x, condition = node.emit, node[0], node[1]
    if node.has_attribute("axis"):
        axis = node.axis(node.integer("axis"), x.rank)
    else:
        x, axis = emit.reshape(x, (product(x.shape),)), 0
    if condition.rank != 1 or not is_bool(condition.element_type):
        raise ModelError(f"{node.description}: its condition must be bools of rank 1, got {condition.type}")
    if x.shape[axis] == 0:
        return x
    (indices,) = _select(node, dl.NonzeroOp, condition)
    return emit(dl.GatherOp, x, emit.reshape(indices, (indices.shape[1],)), axis=axis)


@table("Unique")
def unique(node: OnnxNode) -> tuple[ImportedValue, ...]:
    if isinstance(node[0], StringTensor):
        return strings.unique(node)
    axis = node.axis(node.integer("axis"), node[0].rank) if node.has_attribute("axis") else None
    return _select(node, dl.UniqueOp, node[0], axis=axis, keep_order=not node.flag("sorted", True))


@table("NonMaxSuppression", since=10)
def non_max_suppression(node: OnnxNode) -> ImportedValue:
    def setting(k: int, default: float, element_type: Attribute) -> ImportedValue:
        value = node.get(k)
        return node.emit.scalar(default, element_type) if value is None else node.emit.reshape(value, ())

    # Defaults: no boxes, and no score threshold.
    settings = (setting(2, 0, i64), setting(3, 0.0, f32), setting(4, float("-inf"), f32))
    center_point = node.flag("center_point_box")
    return _select(node, dl.NonMaxSuppressionOp, node[0], node[1], *settings, center_point=center_point)[0]


@table("ImageDecoder", since=20)
def image_decoder(node: OnnxNode) -> ImportedValue:
    """Decode the bytes of an image file."""
    emit, order = node.emit, node.choice("pixel_format", "RGB", ("RGB", "BGR", "Grayscale"))
    size = (emit.new_size("height"), emit.new_size("width"))
    pixels = emit.unfolded(dl.DecodeImageOp, node[0], size=size, gray=order == "Grayscale")[0]
    return emit(dl.ReverseOp, pixels, axes=(2,)) if order == "BGR" else pixels

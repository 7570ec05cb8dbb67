"""The operator `SoftClip` of the ONNX domain `com.example`: input x, attribute `limit`, by default 1."""

from __future__ import annotations

from dlc.extend.onnx import ConverterTable, ImportedValue, OnnxNode
from dlc_soft_clip.op import SoftClipOp

table = ConverterTable()
CONVERTERS = {"com.example": table}


@table("SoftClip")
def soft_clip(node: OnnxNode) -> ImportedValue:
    x = node[0]
    return node.emit(SoftClipOp, x, node.emit.scalar(node.real("limit", 1.0), like=x))

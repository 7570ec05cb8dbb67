"""Quantized layers of ONNX Runtime's domain `com.microsoft`: attention, embeddings and recurrence.

Their integers are dequantized, and the float layer computes. ONNX Runtime also rounds the activations of
`DynamicQuantizeLSTM` to 8 bits, with scales that it computes at each step; here they stay floats.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.operators.arithmetic.quantization import quantization_parameter, zero_point
from dlc.frontend.onnx.operators.recurrence import lstm
from dlc.frontend.onnx.operators.transformers import attention, embed_layer_normalization
from dlc.frontend.onnx.registry import ConverterTable
from dlc.ir import i32

table = ConverterTable()


def _dequantize(node: OnnxNode, k: int, scale: int, zero: int, axis: int = 0) -> ImportedValue | None:
    """Dequantize input k; the scale and the zero point are other inputs, of rank 0 or with an entry per index of `axis`."""
    x = node.get(k)
    if x is None:
        return None
    factor = quantization_parameter(node, node[scale])
    return node.emit.unfolded(dl.DequantizeOp, x, factor, zero_point(node, zero, x.element_type), axis=axis)[0]


@table("QAttention")
def quantized_attention(node: OnnxNode) -> list[ImportedValue]:
    """Inputs: X, W, bias, scales of X and W, mask, zero points of X and W, past."""
    x, w = _dequantize(node, 0, 3, 6), _dequantize(node, 1, 4, 7, axis=1)
    return attention(node.with_inputs(x, w, node.get(2), node.get(5), node.get(8)))


@table("QEmbedLayerNormalization")
def quantized_embed_layer_normalization(node: OnnxNode) -> list[ImportedValue]:
    """Inputs: ids, segment ids, five tables and factors, mask; then their scales; then their zero points."""
    words, positions, segments, gamma, beta = (_dequantize(node, 2 + k, 8 + k, 13 + k) for k in range(5))
    float_node = node.with_inputs(node[0], node.get(1), words, positions, segments, gamma, beta, node.get(7))
    return embed_layer_normalization(float_node)[: len(node.proto.output)]


@table("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(node: OnnxNode) -> Sequence[ImportedValue]:
    """Weights are [directions, inputs, gates], with a scale per direction, or per direction and gate."""
    emit = node.emit

    def weights(k: int, scale_index: int) -> ImportedValue:
        def expanded(v: ImportedValue) -> ImportedValue:
            return emit.reshape(v, (v.shape[0], 1, v.shape[1] if v.rank == 2 else 1))

        w = emit(dl.SubOp, emit.cast(node[k], i32), expanded(emit.cast(node[scale_index + 1], i32)))
        scale = node[scale_index]
        return emit.transpose(emit(dl.MulOp, emit.cast(w, scale.element_type), expanded(scale)), (0, 2, 1))

    return lstm(node.with_inputs(node[0], weights(1, 8), weights(2, 10), *(node.get(k) for k in range(3, 8))))

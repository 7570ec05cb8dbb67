"""The quantized model: QuantizeLinear and DequantizeLinear (QDQ) around the operands of layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, helper

from dlc.quantization.graph import QuantizationGraph
from dlc.quantization.layer_selection import Layer, quantized_tensors
from dlc.quantization.ranges import QuantizationParameters
from dlc.quantization.weights import QuantizedWeights
from dlc.weights import Array


def build_qdq_model(
    graph: QuantizationGraph,
    layers: Iterable[Layer],
    parameters: Mapping[str, QuantizationParameters],
    weights: Mapping[str, QuantizedWeights],
    *,
    quantize_outputs: bool,
) -> ModelProto:
    """Return the model with these layers quantized. Float runtimes execute the QDQ pairs; int8 runtimes fuse them.

        y = Conv(x, w, b)
    →   y = Conv(Dequantize(Quantize(x, s, z)), Dequantize(wq, t), Dequantize(bq, s · t))

    All other users of `x` read the dequantized tensor. `parameters` has one entry per tensor that determines a range.
    """
    layer_by_name = {layer.name: layer for layer in layers}
    # The copied node of each layer, by output.
    copy = graph.copy()
    by_output = copy.producers
    tensors = quantized_tensors(graph, layer_by_name.values(), quantize_outputs=quantize_outputs)
    for layer in layer_by_name.values():
        _quantize_operands(copy, by_output[layer.node.output[0]], layer, parameters[tensors[layer.data]], weights[layer.name])
    for name, source in tensors.items():
        copy.replace_uses(name, quantize_dequantize(copy, name, parameters[source]))
    return copy.to_model()


def quantize_dequantize(graph: QuantizationGraph, name: str, parameters: QuantizationParameters) -> tuple[list[NodeProto], str]:
    """Return the nodes that quantize and dequantize a tensor, and the name of the result."""
    operands = [
        graph.constant(f"{name}_scale", np.asarray(parameters.scale, np.float32)),
        graph.constant(f"{name}_zero_point", np.asarray(parameters.zero_point, parameters.dtype)),
    ]
    names = [graph.unique_name(f"{name}_{word}") for word in ("quantized", "dequantized")]
    quantize_node = helper.make_node("QuantizeLinear", [name, *operands], [names[0]], name=names[0])
    return [quantize_node, helper.make_node("DequantizeLinear", [names[0], *operands], [names[1]], name=names[1])], names[1]


def _quantize_operands(
    graph: QuantizationGraph, node: NodeProto, layer: Layer, data: QuantizationParameters, weights: QuantizedWeights
) -> None:
    axis = layer.axis if weights.scale.ndim else None
    node.input[1] = _dequantized_constant(graph, layer.weights, weights.values, weights.scale, axis)
    if layer.bias is not None and weights.bias is not None:
        scale = np.asarray(data.scale * weights.scale, np.float32)
        values = np.rint(weights.bias / scale.astype(np.float64)).astype(np.int32)
        node.input[2] = _dequantized_constant(graph, layer.bias, values, scale, 0 if scale.ndim else None)


def _dequantized_constant(graph: QuantizationGraph, name: str, values: Array, scale: Array, axis: int | None) -> str:
    """Add a quantized constant with a DequantizeLinear node at the start of the graph; return the dequantized name."""
    zero = np.zeros(scale.shape, values.dtype)
    operands = [
        graph.constant(f"{name}_{word}", array)
        for word, array in (("quantized", values), ("scale", scale), ("zero_point", zero))
    ]
    dequantized = graph.unique_name(f"{name}_dequantized")
    node = helper.make_node("DequantizeLinear", operands, [dequantized], name=dequantized)
    if axis is not None:
        node.attribute.append(helper.make_attribute("axis", axis))
    graph.nodes.insert(0, node)
    return dequantized

"""Dynamic quantization: int8 weights in the file; activations are quantized at run time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from dlc.errors import UnsupportedError
from dlc.quantization.graph import QuantizationGraph
from dlc.quantization.layer_selection import Layer
from dlc.quantization.weights import QuantizedWeights, quantize_weights

# The activation scale is computed at run time, so the bias is not quantized.
_NO_BIAS_SCALE = np.inf


def dynamic_layers(graph: QuantizationGraph, layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Return the layers that dynamic quantization supports: matrix products. Raises UnsupportedError if there are none."""
    supported_layers = tuple(layer for layer in layers if layer.op != "Conv")
    if not supported_layers:
        raise UnsupportedError(
            f"{graph.name}: dynamic quantization needs MatMul or Gemm with constant weights, and the model has only Conv; "
            "quantize it with calibration data"
        )
    return supported_layers


def dynamic_model(
    graph: QuantizationGraph, layers: Iterable[Layer], *, per_channel: bool, reduce_range: bool = False
) -> ModelProto:
    """Return the model with these layers quantized:

        y = MatMul(x, w)
    →   q, s, z = DynamicQuantizeLinear(x);  y = Mul(Cast(MatMulInteger(q, wq, z)), Mul(s, t))
    """
    copy = graph.copy()
    node_indices = {node.output[0]: k for k, node in enumerate(copy.nodes)}
    data: dict[str, list[str]] = {}
    new: dict[int, list[NodeProto]] = {}
    for layer in layers:
        weights = quantize_weights(graph, layer, _NO_BIAS_SCALE, None, per_channel=per_channel, reduce_range=reduce_range)
        nodes: list[NodeProto] = []
        if layer.data not in data:
            data[layer.data] = [copy.unique_name(f"{layer.data}_{word}") for word in ("quantized", "scale", "zero_point")]
            nodes.append(_node("DynamicQuantizeLinear", [layer.data], data[layer.data]))
        new[node_indices[layer.node.output[0]]] = [*nodes, *_integer_matmul(copy, layer, weights, data[layer.data])]
    copy.nodes = [new_node for k, node in enumerate(copy.nodes) for new_node in new.get(k, [node])]
    return copy.to_model()


def _integer_matmul(graph: QuantizationGraph, layer: Layer, weights: QuantizedWeights, data: list[str]) -> list[NodeProto]:
    values = weights.values if layer.axis == 1 else weights.values.T
    integers = graph.constant(f"{layer.weights}_quantized", np.ascontiguousarray(values))
    scale = graph.constant(f"{layer.weights}_scale", weights.scale)
    quantized, data_scale, zero = data
    result = layer.node.output[0]
    sums, floats, factor = (graph.unique_name(f"{result}_{word}") for word in ("integers", "floats", "factor"))
    scaled = result if layer.bias is None else graph.unique_name(f"{result}_scaled")
    nodes = [
        _node("MatMulInteger", [quantized, integers, zero], [sums]),
        helper.make_node("Cast", [sums], [floats], name=floats, to=TensorProto.FLOAT),
        _node("Mul", [data_scale, scale], [factor]),
        _node("Mul", [floats, factor], [scaled]),
    ]
    return nodes if layer.bias is None else [*nodes, _node("Add", [scaled, layer.bias], [result])]


def _node(op: str, inputs: list[str], outputs: list[str]) -> NodeProto:
    return helper.make_node(op, inputs, outputs, name=outputs[0])

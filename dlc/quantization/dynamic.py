"""Dynamic quantisation: weights are integers in the file, and data becomes integers when the model runs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from dlc.errors import UnsupportedError
from dlc.quantization.graph import Graph
from dlc.quantization.placing import Layer
from dlc.quantization.weights import QuantisedWeights, quantised_weights

# A scale is known when the model runs: no bias can be in steps of it.
_NO_STEPS = np.inf


def dynamic_layers(graph: Graph, layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """The layers that are quantised so, those that multiply matrices; raises UnsupportedError where there is none."""
    found = tuple(layer for layer in layers if layer.op != "Conv")
    if not found:
        raise UnsupportedError(
            f"{graph.name}: nothing to quantise dynamically: it has convolutions, and no MatMul or Gemm by constant weights; "
            "quantise it with calibration data"
        )
    return found


def dynamic_model(graph: Graph, layers: Iterable[Layer], *, per_channel: bool) -> ModelProto:
    """The model with these layers in integers:

        y = MatMul(x, w)
    →   q, s, z = DynamicQuantizeLinear(x);  y = Mul(Cast(MatMulInteger(q, wq, z)), Mul(s, t))
    """
    copy = graph.copy()
    places = {node.output[0]: k for k, node in enumerate(copy.nodes)}
    data: dict[str, list[str]] = {}
    new: dict[int, list[NodeProto]] = {}
    for layer in layers:
        weights = quantised_weights(graph, layer, _NO_STEPS, None, per_channel=per_channel)
        nodes: list[NodeProto] = []
        if layer.data not in data:
            data[layer.data] = [copy.new_name(f"{layer.data}_{word}") for word in ("quantized", "scale", "zero_point")]
            nodes.append(_node("DynamicQuantizeLinear", [layer.data], data[layer.data]))
        new[places[layer.node.output[0]]] = [*nodes, *_multiplied(copy, layer, weights, data[layer.data])]
    copy.nodes = [made for k, node in enumerate(copy.nodes) for made in new.get(k, [node])]
    return copy.written()


def _multiplied(graph: Graph, layer: Layer, weights: QuantisedWeights, data: list[str]) -> list[NodeProto]:
    values = weights.values if layer.axis == 1 else weights.values.T
    integers = graph.constant(f"{layer.weights}_quantized", np.ascontiguousarray(values))
    scale = graph.constant(f"{layer.weights}_scale", weights.scale)
    quantised, data_scale, zero = data
    result = layer.node.output[0]
    sums, floats, factor = (graph.new_name(f"{result}_{word}") for word in ("integers", "floats", "factor"))
    scaled = result if layer.bias is None else graph.new_name(f"{result}_scaled")
    nodes = [
        _node("MatMulInteger", [quantised, integers, zero], [sums]),
        helper.make_node("Cast", [sums], [floats], name=floats, to=TensorProto.FLOAT),
        _node("Mul", [data_scale, scale], [factor]),
        _node("Mul", [floats, factor], [scaled]),
    ]
    return nodes if layer.bias is None else [*nodes, _node("Add", [scaled, layer.bias], [result])]


def _node(op: str, inputs: list[str], outputs: list[str]) -> NodeProto:
    return helper.make_node(op, inputs, outputs, name=outputs[0])

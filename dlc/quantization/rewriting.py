"""The graph with integers in it: QuantizeLinear and DequantizeLinear around what layers read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, helper

from dlc.quantization.graph import Graph
from dlc.quantization.placing import Layer, tensors_of
from dlc.quantization.ranges import Parameters
from dlc.quantization.weights import QuantisedWeights
from dlc.weights import Array


def quantised_model(
    graph: Graph,
    layers: Iterable[Layer],
    parameters: Mapping[str, Parameters],
    weights: Mapping[str, QuantisedWeights],
    *,
    everywhere: bool,
) -> ModelProto:
    """The model with these layers in integers, as a float runtime reads it and one that knows the pattern computes it:

        y = Conv(x, w, b)
    →   y = Conv(Dequantize(Quantize(x, s, z)), Dequantize(wq, t), Dequantize(bq, s · t))

    Whoever else reads `x` reads the dequantised one. `parameters` are those of every tensor that gives others its range.
    """
    chosen = {layer.name: layer for layer in layers}
    # Of the copy's own nodes.
    copy = graph.copy()
    by_output = copy.producers
    tensors = tensors_of(graph, chosen.values(), everywhere=everywhere)
    for layer in chosen.values():
        _quantise_operands(copy, by_output[layer.node.output[0]], layer, parameters[tensors[layer.data]], weights[layer.name])
    for name, source in tensors.items():
        copy.read_instead(name, dequantised(copy, name, parameters[source]))
    return copy.written()


def dequantised(graph: Graph, name: str, parameters: Parameters) -> tuple[list[NodeProto], str]:
    """A tensor quantised and dequantised: the nodes, and the name of the result."""
    operands = [
        graph.constant(f"{name}_scale", np.asarray(parameters.scale, np.float32)),
        graph.constant(f"{name}_zero_point", np.asarray(parameters.zero_point, parameters.dtype)),
    ]
    made = [graph.new_name(f"{name}_{word}") for word in ("quantized", "dequantized")]
    quantise = helper.make_node("QuantizeLinear", [name, *operands], [made[0]], name=made[0])
    return [quantise, helper.make_node("DequantizeLinear", [made[0], *operands], [made[1]], name=made[1])], made[1]


def _quantise_operands(graph: Graph, node: NodeProto, layer: Layer, data: Parameters, weights: QuantisedWeights) -> None:
    axis = layer.axis if weights.scale.ndim else None
    node.input[1] = _constant(graph, layer.weights, weights.values, weights.scale, axis)
    if layer.bias is not None and weights.bias is not None:
        scale = np.asarray(data.scale * weights.scale, np.float32)
        values = np.rint(weights.bias / scale.astype(np.float64)).astype(np.int32)
        node.input[2] = _constant(graph, layer.bias, values, scale, 0 if scale.ndim else None)


def _constant(graph: Graph, name: str, values: Array, scale: Array, axis: int | None) -> str:
    """The name of a dequantised constant, whose node stands first."""
    zero = np.zeros(scale.shape, values.dtype)
    operands = [
        graph.constant(f"{name}_{word}", array)
        for word, array in (("quantized", values), ("scale", scale), ("zero_point", zero))
    ]
    made = graph.new_name(f"{name}_dequantized")
    node = helper.make_node("DequantizeLinear", operands, [made], name=made)
    if axis is not None:
        node.attribute.append(helper.make_attribute("axis", axis))
    graph.nodes.insert(0, node)
    return made

"""Select the layers and tensors to quantize."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from onnx import NodeProto

from dlc.errors import DlcError, UnsupportedError
from dlc.frontend.onnx.graph import all_nodes, label, subgraphs
from dlc.quantization.graph import QuantizationGraph, int_attribute

# Ops with weights.
LAYER_OPS = ("Conv", "Gemm", "MatMul")
# Data-movement ops: quantized values pass through unchanged.
_DATA_MOVEMENT_OPS = (
    "MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice", "Split", "DepthToSpace",
    "SpaceToDepth", "Pad",
)  # fmt: skip
# Activations that are fused into a layer's epilogue.
_ACTIVATION_OPS = ("Relu", "Clip")
# Ops that ONNX Runtime computes in integers if all their inputs and outputs are quantized.
_INTEGER_OPS = (
    "Add",
    "Mul",
    "Sigmoid",
    "AveragePool",
    "GlobalAveragePool",
    "Concat",
    "LeakyRelu",
    "Resize",
    *_DATA_MOVEMENT_OPS,
)


@dataclass(frozen=True)
class Layer:
    """A convolution or matrix product: multiplies `data` by `weights`, whose output channels are along `axis`, and adds `bias`.

    A convolution may have `groups` of channels.
    """

    name: str
    op: str
    node: NodeProto
    data: str
    weights: str
    bias: str | None
    axis: int
    groups: int = 1


@dataclass(frozen=True)
class Layers:
    """The quantizable layers of a model, and the reason why each similar node is skipped."""

    quantizable: tuple[Layer, ...]
    skipped_nodes: Mapping[str, str]

    def matching(self, patterns: Sequence[str]) -> frozenset[str]:
        """Return the names of the layers that match names or patterns. Raises DlcError for a pattern without a match."""
        names = [layer.name for layer in self.quantizable]
        matches: set[str] = set()
        for pattern in patterns:
            pattern_matches = {name for name in names if name == pattern or fnmatchcase(name, pattern)}
            if not pattern_matches:
                raise DlcError(
                    f"no layer matches '{pattern}'; the layers are {', '.join(names[:12])}{' …' * (len(names) > 12)}"
                )
            matches |= pattern_matches
        return frozenset(matches)


def find_layers(graph: QuantizationGraph) -> Layers:
    """Return the layers of a graph. Raises UnsupportedError if there are none."""
    layers: list[Layer] = []
    skipped_nodes: dict[str, str] = {}
    for node in graph.nodes:
        for inner in (n for g in subgraphs(node) for n in all_nodes(g)):
            if inner.op_type in LAYER_OPS:
                skipped_nodes[label(inner)] = f"{inner.op_type}: in a subgraph of {node.op_type} '{label(node)}'"
        if node.domain or node.op_type not in LAYER_OPS:
            continue
        if reason := _skip_reason(graph, node):
            skipped_nodes[label(node)] = f"{node.op_type}: {reason}"
            continue
        rank = graph.constants[node.input[1]].ndim
        axis = 0 if node.op_type == "Conv" or int_attribute(node, "transB") else rank - 1
        bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
        layers.append(
            Layer(label(node), node.op_type, node, node.input[0], node.input[1], bias, axis, int_attribute(node, "group", 1))
        )
    if not layers:
        skipped_text = "".join(f"\n  {name}: {reason}" for name, reason in list(skipped_nodes.items())[:12])
        raise UnsupportedError(
            f"{graph.name}: nothing to quantize: expected {', '.join(LAYER_OPS)} with float32 data and constant weights"
            f"{skipped_text}"
        )
    return Layers(tuple(layers), skipped_nodes)


def _skip_reason(graph: QuantizationGraph, node: NodeProto) -> str:
    """Return the reason that a node is not quantizable; "" if it is."""
    data, weights, *bias_inputs = node.input
    if weights not in graph.constants:
        return "its weights are not constant"
    if data in graph.constants:
        return "its data is a constant"
    array = graph.constants[weights]
    if array.dtype != np.float32:
        return f"its weights have dtype {array.dtype}"
    if not np.isfinite(array).all():
        return "its weights are not finite"
    if any(name and name not in graph.constants for name in bias_inputs):
        return "its bias is not constant"
    if node.op_type == "MatMul" and array.ndim != 2:
        return f"its weights have {array.ndim} dimensions, expected 2"
    if node.op_type == "Gemm":
        if int_attribute(node, "transA") or any(a.name in ("alpha", "beta") and a.f != 1 for a in node.attribute):
            return "it transposes or scales its operands"
        channels = array.shape[0 if int_attribute(node, "transB") else 1]
        if bias_inputs and bias_inputs[0] and graph.constants[bias_inputs[0]].shape != (channels,):
            return "its bias does not have one element per channel"
    return ""


def quantized_tensors(graph: QuantizationGraph, layers: Iterable[Layer], *, quantize_outputs: bool = False) -> dict[str, str]:
    """Return the tensors to quantize, in topological order, each with the tensor that determines its range.

    These are the inputs of the layers, and the operands of the data-movement ops before them, which then run on integers.
    `quantize_outputs` adds the layers' results and the tensors between layers, which other runtimes need to compute in
    integers.
    """
    producers = graph.producers
    tensor_names = [layer.data for layer in layers]
    if quantize_outputs:
        tensor_names += _intermediate_tensors(graph, layers)
    range_tensors: dict[str, str] = {}
    for name in tensor_names:
        path = [name]
        while (node := producers.get(path[-1])) is not None and _is_data_movement(graph, node):
            path.append(node.input[0])
        range_tensors.update(dict.fromkeys(path, path[-1]))
    order = [*(value.name for value in graph.inputs), *(name for node in graph.nodes for name in node.output)]
    return {name: range_tensors[name] for name in order if name in range_tensors}


def _is_data_movement(graph: QuantizationGraph, node: NodeProto) -> bool:
    if node.domain or node.op_type not in _DATA_MOVEMENT_OPS or node.input[0] in graph.constants:
        return False
    if node.op_type != "Pad":
        return True
    mode = next((a.s for a in node.attribute if a.name == "mode"), b"constant")
    value = node.input[2] if len(node.input) > 2 else ""
    return mode != b"constant" or not value or (value in graph.constants and not graph.constants[value].any())


def _intermediate_tensors(graph: QuantizationGraph, layers: Iterable[Layer]) -> list[str]:
    """Return the results of layers after their fused activation, and the tensors computed from them between layers."""
    users = graph.users
    float_names = {layer.node.output[0] for layer in layers}
    tensors: list[str] = []
    for node in graph.nodes:
        output = node.output[0]
        if not (output in float_names or (node.op_type in (*_INTEGER_OPS, *_ACTIVATION_OPS) and node.input[0] in float_names)):
            continue
        float_names.add(output)
        output_users = users.get(output, [])
        fused = len(output_users) == 1 and output_users[0].op_type in _ACTIVATION_OPS and output not in graph.outputs
        if not fused and output not in graph.outputs:
            tensors.append(output)
    return tensors

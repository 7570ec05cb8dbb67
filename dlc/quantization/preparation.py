"""Prepare a model for quantization: upgrade the opset, fold constants, fold BatchNormalization into convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from dlc.errors import DlcError, UnsupportedError
from dlc.frontend.onnx.graph import ModelFile, all_nodes, describe, label
from dlc.quantization.graph import QuantizationGraph

# The first opset with per-channel scales.
_MIN_OPSET = 13
# Substrings of the names of quantized operators, in ONNX and in ONNX Runtime's domain.
_QUANTIZED_OP_WORDS = (
    "QuantizeLinear",
    "DequantizeLinear",
    "QLinear",
    "Integer",
    "QGemm",
    "QAttention",
    "NBits",
    "DynamicQuantize",
)
# Ops that exporters insert between a weight and its user.
_FOLDABLE_OPS = ("Constant", "Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast")


def prepare_graph(file: ModelFile) -> QuantizationGraph:
    """Return the graph of a model with folded constants and BatchNormalization folded into the preceding convolutions.

    Raises UnsupportedError for a model that is already quantized, or whose opset has no per-channel scales and cannot be
    converted.
    """
    _require_float(file)
    graph = QuantizationGraph(_upgrade_opset(file))
    _fold_constants(graph)
    _fold_batch_norms(graph)
    return graph


def _require_float(file: ModelFile) -> None:
    quantized_nodes = [
        node for node in all_nodes(file.proto.graph) if any(word in node.op_type for word in _QUANTIZED_OP_WORDS)
    ]
    if quantized_nodes:
        count_note = f" (one of {len(quantized_nodes)} such nodes)" if len(quantized_nodes) > 1 else ""
        raise UnsupportedError(
            f"{file.name}: already quantized: {describe(quantized_nodes[0])}{count_note}; give the float model"
        )


def _upgrade_opset(file: ModelFile) -> ModelFile:
    opset = next((o.version for o in file.proto.opset_import if o.domain in ("", "ai.onnx")), _MIN_OPSET)
    if opset >= _MIN_OPSET:
        return file
    try:
        proto = onnx.version_converter.convert_version(file.proto, _MIN_OPSET)
    except Exception as error:  # the C++ converter raises various types
        reason = str(error).strip().partition("\n")[0]
        raise UnsupportedError(
            f"{file.name}: opset {opset} has no per-channel scales, and onnx cannot convert the model to opset {_MIN_OPSET}: "
            f"{reason}; export it with opset {_MIN_OPSET} or later"
        ) from error
    return ModelFile(proto, file.folder, file.name)


def _fold_constants(graph: QuantizationGraph) -> None:
    remaining: list[NodeProto] = []
    for node in graph.nodes:
        if node.op_type not in _FOLDABLE_OPS or node.domain or not all(name in graph.constants for name in node.input):
            remaining.append(node)
            continue
        graph.constants[node.output[0]] = _evaluate_node(graph, node)
    graph.nodes = remaining


def _evaluate_node(graph: QuantizationGraph, node: NodeProto) -> Any:
    """Evaluate a node with constant inputs."""
    inputs = [helper.make_empty_tensor_value_info(name) for name in node.input]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    model = helper.make_model(helper.make_graph([node], "constant", inputs, outputs), opset_imports=graph.model.opset_import)
    try:
        (value,) = ReferenceEvaluator(model).run(None, {name: graph.constants[name] for name in node.input})
    except Exception as error:  # onnx's reference evaluator raises any error of NumPy
        raise DlcError(f"{graph.name}: {describe(node)}: its constant inputs are inconsistent: {error}") from error
    return np.asarray(value)


# bn(conv(x, w) + b) = conv(x, w · f) + (b - mean) · f + beta, with f = gamma / sqrt(variance + epsilon)
def _fold_batch_norms(graph: QuantizationGraph) -> None:
    producers, users = graph.producers, graph.users
    folded: list[NodeProto] = []
    for norm in graph.nodes:
        if norm.op_type != "BatchNormalization" or (len(norm.output) > 1 and norm.output[1]):
            continue
        conv = producers.get(norm.input[0])
        if conv is None or conv.op_type != "Conv" or not graph.has_single_user(conv.output[0], users):
            continue
        operands = [*conv.input[1:], *norm.input[1:]]
        if not all(name in graph.constants for name in operands):
            continue
        gamma, beta, mean, variance = (graph.constants[name].astype(np.float64) for name in norm.input[1:])
        factor = gamma / np.sqrt(variance + _epsilon(norm))
        weights = graph.constants[conv.input[1]]
        bias = graph.constants[conv.input[2]] if len(conv.input) > 2 else np.zeros(())
        scaled_weights = weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))
        name = label(conv)
        operands = [
            graph.constant(f"{name}.weight", scaled_weights.astype(weights.dtype)),
            graph.constant(f"{name}.bias", ((bias - mean) * factor + beta).astype(weights.dtype)),
        ]
        conv.input[1:] = operands
        conv.output[0] = norm.output[0]
        folded.append(norm)
    graph.nodes = [node for node in graph.nodes if not any(node is norm for norm in folded)]


def _epsilon(norm: NodeProto) -> float:
    return next((attribute.f for attribute in norm.attribute if attribute.name == "epsilon"), 1e-5)

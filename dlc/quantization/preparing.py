"""What is done to a model before its layers are looked at: an opset that can say it, constants, BatchNorm in weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from dlc.errors import DlcError, UnsupportedError
from dlc.frontend.onnx.graph import ModelFile, all_nodes, label, place
from dlc.quantization.graph import Graph

# The first opset in which a scale may be given for each channel.
_OPSET = 13
# What names an operator on quantised numbers has, in ONNX and in ONNX Runtime's own domain.
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "QLinear", "Integer", "QGemm", "QAttention", "NBits", "DynamicQuantize")
# What exporters put between a weight and its reader.
_OF_WEIGHTS = ("Constant", "Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast")


def prepared(file: ModelFile) -> Graph:
    """The graph of a model, with constants known, and with each BatchNorm behind a convolution folded into its weights.

    Raises UnsupportedError for a model that is quantised already, and for one of an opset that has no scales for channels
    and cannot be converted.
    """
    _require_float(file)
    graph = Graph(_of_opset(file))
    _fold_constants(graph)
    _fold_batch_norms(graph)
    return graph


def _require_float(file: ModelFile) -> None:
    found = [node for node in all_nodes(file.proto.graph) if any(word in node.op_type for word in _QUANTISED)]
    if found:
        more = f" (one of {len(found)} such nodes)" if len(found) > 1 else ""
        raise UnsupportedError(
            f"{file.name}: quantised already: {place(found[0])}{more}; give the model in floats that it was made from"
        )


def _of_opset(file: ModelFile) -> ModelFile:
    opset = next((o.version for o in file.proto.opset_import if o.domain in ("", "ai.onnx")), _OPSET)
    if opset >= _OPSET:
        return file
    try:
        proto = onnx.version_converter.convert_version(file.proto, _OPSET)
    except Exception as error:  # of whatever type its C++ code raises
        reason = str(error).strip().partition("\n")[0]
        raise UnsupportedError(
            f"{file.name}: opset {opset} cannot say scales of channels, and onnx cannot convert the model to opset {_OPSET}: "
            f"{reason}; export it with opset {_OPSET} or later"
        ) from error
    return ModelFile(proto, file.folder, file.name)


def _fold_constants(graph: Graph) -> None:
    kept: list[NodeProto] = []
    for node in graph.nodes:
        if node.op_type not in _OF_WEIGHTS or node.domain or not all(name in graph.constants for name in node.input):
            kept.append(node)
            continue
        graph.constants[node.output[0]] = _evaluated(graph, node)
    graph.nodes = kept


def _evaluated(graph: Graph, node: NodeProto) -> Any:
    """What a node of constants makes."""
    inputs = [helper.make_empty_tensor_value_info(name) for name in node.input]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    model = helper.make_model(helper.make_graph([node], "constant", inputs, outputs), opset_imports=graph.model.opset_import)
    try:
        (value,) = ReferenceEvaluator(model).run(None, {name: graph.constants[name] for name in node.input})
    except Exception as error:  # onnx's evaluator raises whatever NumPy does
        raise DlcError(f"{graph.name}: {place(node)}: its constants do not fit together: {error}") from error
    return np.asarray(value)


# bn(conv(x, w) + b) = conv(x, w · f) + (b - mean) · f + beta, with f = gamma / sqrt(variance + epsilon)
def _fold_batch_norms(graph: Graph) -> None:
    producers, readers = graph.producers, graph.readers
    folded: list[NodeProto] = []
    for norm in graph.nodes:
        if norm.op_type != "BatchNormalization" or (len(norm.output) > 1 and norm.output[1]):
            continue
        conv = producers.get(norm.input[0])
        if conv is None or conv.op_type != "Conv" or not graph.is_private(conv.output[0], readers):
            continue
        operands = [*conv.input[1:], *norm.input[1:]]
        if not all(name in graph.constants for name in operands):
            continue
        gamma, beta, mean, variance = (graph.constants[name].astype(np.float64) for name in norm.input[1:])
        factor = gamma / np.sqrt(variance + _epsilon(norm))
        weights = graph.constants[conv.input[1]]
        bias = graph.constants[conv.input[2]] if len(conv.input) > 2 else np.zeros(())
        scaled = weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))
        name = label(conv)
        operands = [
            graph.constant(f"{name}.weight", scaled.astype(weights.dtype)),
            graph.constant(f"{name}.bias", ((bias - mean) * factor + beta).astype(weights.dtype)),
        ]
        conv.input[1:] = operands
        conv.output[0] = norm.output[0]
        folded.append(norm)
    graph.nodes = [node for node in graph.nodes if not any(node is norm for norm in folded)]


def _epsilon(norm: NodeProto) -> float:
    return next((attribute.f for attribute in norm.attribute if attribute.name == "epsilon"), 1e-5)

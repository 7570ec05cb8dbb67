"""Where a model is quantised: which nodes are its layers, and which tensors are integers for their sake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from onnx import NodeProto

from dlc.errors import DlcError, UnsupportedError
from dlc.frontend.onnx.graph import all_nodes, label, subgraphs
from dlc.quantization.graph import Graph, integer

# Nodes that multiply by weights.
LAYERS = ("Conv", "Gemm", "MatMul")
# What only moves elements, or picks some: integers go through it as they are.
_MOVES = (
    "MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice", "Split", "DepthToSpace",
    "SpaceToDepth", "Pad",
)  # fmt: skip
# What a layer's epilogue does before its result is stored.
_ACTIVATIONS = ("Relu", "Clip")
# What ONNX Runtime computes on integers between layers, where all that it reads and makes is quantised.
_BETWEEN = ("Add", "Mul", "Sigmoid", "AveragePool", "GlobalAveragePool", "Concat", "LeakyRelu", "Resize", *_MOVES)


@dataclass(frozen=True)
class Layer:
    """A node that multiplies `data` by `weights`, whose places of `axis` are output channels, and adds `bias`.

    Convolutions may be in groups of channels.
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
    """The layers of a model, and why other nodes that look like some are none."""

    quantised: tuple[Layer, ...]
    others: Mapping[str, str]

    def matching(self, patterns: Sequence[str]) -> frozenset[str]:
        """The names of layers that names and patterns mean; raises DlcError for one that means none."""
        names = [layer.name for layer in self.quantised]
        found: set[str] = set()
        for pattern in patterns:
            meant = {name for name in names if name == pattern or fnmatchcase(name, pattern)}
            if not meant:
                raise DlcError(
                    f"no layer is called '{pattern}'; the layers are {', '.join(names[:12])}{' …' * (len(names) > 12)}"
                )
            found |= meant
        return frozenset(found)


def layers_of(graph: Graph) -> Layers:
    """The layers of a graph. Raises UnsupportedError where there is none."""
    layers: list[Layer] = []
    others: dict[str, str] = {}
    for node in graph.nodes:
        for inner in (n for g in subgraphs(node) for n in all_nodes(g)):
            if inner.op_type in LAYERS:
                others[label(inner)] = f"{inner.op_type}: inside of {node.op_type} '{label(node)}'"
        if node.domain or node.op_type not in LAYERS:
            continue
        if reason := _obstacle(graph, node):
            others[label(node)] = f"{node.op_type}: {reason}"
            continue
        rank = graph.constants[node.input[1]].ndim
        axis = 0 if node.op_type == "Conv" or integer(node, "transB") else rank - 1
        bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
        layers.append(
            Layer(label(node), node.op_type, node, node.input[0], node.input[1], bias, axis, integer(node, "group", 1))
        )
    if not layers:
        found = "".join(f"\n  {name}: {reason}" for name, reason in list(others.items())[:12])
        raise UnsupportedError(
            f"{graph.name}: nothing to quantise: no {', '.join(LAYERS)} multiplies data of f32 by constant weights{found}"
        )
    return Layers(tuple(layers), others)


def _obstacle(graph: Graph, node: NodeProto) -> str:
    """Why a node of a layer's kind is none; nothing where it is one."""
    data, weights, *rest = node.input
    if weights not in graph.constants:
        return "what it multiplies by is no constant"
    if data in graph.constants:
        return "its data is a constant"
    array = graph.constants[weights]
    if array.dtype != np.float32:
        return f"its weights are of {array.dtype}"
    if not np.isfinite(array).all():
        return "its weights are not finite"
    if any(name and name not in graph.constants for name in rest):
        return "its bias is no constant"
    if node.op_type == "MatMul" and array.ndim != 2:
        return f"its weights have {array.ndim} axes, not 2"
    if node.op_type == "Gemm":
        if integer(node, "transA") or any(a.name in ("alpha", "beta") and a.f != 1 for a in node.attribute):
            return "it transposes or scales its operands"
        channels = array.shape[0 if integer(node, "transB") else 1]
        if rest and rest[0] and graph.constants[rest[0]].shape != (channels,):
            return "its bias is not one for each channel"
    return ""


def tensors_of(graph: Graph, layers: Iterable[Layer], *, everywhere: bool = False) -> dict[str, str]:
    """The tensors that are quantised for layers, in the order of the graph, each with the one whose range it has.

    A layer's data is; what it is moved from is too, with its range, so that integers are moved. `everywhere`: results of layers
    as well, and what lies between them, which others need to compute in integers.
    """
    producers = graph.producers
    wanted = [layer.data for layer in layers]
    if everywhere:
        wanted += _between(graph, layers)
    found: dict[str, str] = {}
    for name in wanted:
        path = [name]
        while (node := producers.get(path[-1])) is not None and _moves(graph, node):
            path.append(node.input[0])
        found.update(dict.fromkeys(path, path[-1]))
    order = [*(value.name for value in graph.inputs), *(name for node in graph.nodes for name in node.output)]
    return {name: found[name] for name in order if name in found}


def _moves(graph: Graph, node: NodeProto) -> bool:
    if node.domain or node.op_type not in _MOVES or node.input[0] in graph.constants:
        return False
    if node.op_type != "Pad":
        return True
    mode = next((a.s for a in node.attribute if a.name == "mode"), b"constant")
    value = node.input[2] if len(node.input) > 2 else ""
    return mode != b"constant" or not value or (value in graph.constants and not graph.constants[value].any())


def _between(graph: Graph, layers: Iterable[Layer]) -> list[str]:
    """Results of layers, behind the activation that is computed with them, and what is made of them between layers."""
    readers = graph.readers
    floats = {layer.node.output[0] for layer in layers}
    found: list[str] = []
    for node in graph.nodes:
        made = node.output[0]
        if not (made in floats or (node.op_type in (*_BETWEEN, *_ACTIVATIONS) and node.input[0] in floats)):
            continue
        floats.add(made)
        then = readers.get(made, [])
        fused = len(then) == 1 and then[0].op_type in _ACTIVATIONS and made not in graph.outputs
        if not fused and made not in graph.outputs:
            found.append(made)
    return found

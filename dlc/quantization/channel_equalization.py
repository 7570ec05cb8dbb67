"""Channel equalization: scale activation channels to similar ranges and fold the inverse factors into the weights.

    conv(x, w)  =  conv(x · 1/e, w · e),  with e for each channel

All channels of a tensor have the same quantization scale, so channels of small values have few quantization steps.
(Xiao et al., SmoothQuant, 2023.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from dlc.quantization.calibration import FloatModel
from dlc.quantization.graph import QuantizationGraph, replace_input
from dlc.quantization.layer_selection import Layer, quantized_tensors
from dlc.weights import Array

# Data-movement ops that preserve channels and commute with positive factors.
_CHANNEL_PRESERVING_OPS = ("MaxPool", "Pad", "Identity")
# Lower bound of the factors, because channels with small calibration values may be larger in other data.
_MIN_FACTOR = 1 / 8
# Maximum fraction of the rounding noise that remains; with more, the added multiplication costs more than it gains.
_MAX_NOISE_RATIO = 0.6


@dataclass(frozen=True)
class _TensorGroup:
    """A tensor with its copies by data-movement ops.

    Attributes:
        tensors: The names of the tensor and of its copies.
        layers: The layers that read them.
        axis: The channel axis.
    """

    tensors: tuple[str, ...]
    layers: tuple[Layer, ...]
    axis: int


def equalize_channels(graph: QuantizationGraph, layers: Sequence[Layer], floats: FloatModel) -> dict[str, tuple[str, Array]]:
    """Equalize the channel ranges of layer inputs where this removes enough rounding noise.

    Returns a map from each scaled tensor to its source tensor and the factor.
    """
    groups = _tensor_groups(graph, layers)
    max_magnitudes: dict[str, NDArray[np.float64]] = {}
    for run in floats.runs("measuring channel ranges"):
        for name, group in groups.items():
            channels = np.moveaxis(np.abs(run[name]), group.axis, 0)
            max_magnitudes[name] = np.maximum(
                max_magnitudes.get(name, 0), channels.reshape(len(channels), -1).max(1, initial=0)
            )
    scaled_tensors: dict[str, tuple[str, Array]] = {}
    for name, group in groups.items():
        factors = _channel_factors(max_magnitudes[name], group)
        if factors is not None:
            scaled_tensors |= _apply(graph, name, group, factors)
    return scaled_tensors


def _tensor_groups(graph: QuantizationGraph, layers: Sequence[Layer]) -> dict[str, _TensorGroup]:
    """Return the groups by source: the tensor from which data-movement ops produce the other tensors of the group."""
    producers, users = graph.producers, graph.users
    by_source: dict[str, list[str]] = {}
    for name, source in quantized_tensors(graph, layers).items():
        by_source.setdefault(source, []).append(name)
    groups: dict[str, _TensorGroup] = {}
    for source, names in by_source.items():
        members = tuple(layer for layer in layers if layer.data in names)
        are_convolutions = {layer.op == "Conv" for layer in members}
        inner_producers = [producers[name] for name in names if name != source]
        allowed = _CHANNEL_PRESERVING_OPS if are_convolutions == {True} else ("Identity",)
        # Outputs, and tensors that subgraphs read, must keep their values.
        externally_used = [n for n in names if n != source and (n in graph.outputs or any(n not in r.input for r in users[n]))]
        if len(are_convolutions) == 1 and all(node.op_type in allowed for node in inner_producers) and not externally_used:
            groups[source] = _TensorGroup(tuple(names), members, 1 if are_convolutions == {True} else -1)
    return groups


def _channel_factors(ranges: NDArray[np.float64], group: _TensorGroup) -> NDArray[np.float32] | None:
    """Return the divisor of each channel, or None if equalization is not worthwhile."""
    # Non-finite values are reported when ranges are chosen.
    if not 0 < ranges.max() < np.inf:
        return None
    relative_ranges = ranges / ranges.max()
    # Rounding noise is proportional to the squared step; channels of zeros have none.
    if np.mean(relative_ranges[ranges > 0] ** 2) > _MAX_NOISE_RATIO:
        return None
    all_depthwise = all(layer.op == "Conv" and layer.groups == len(ranges) for layer in group.layers)
    # Weights of summed channels have a common scale and lose as much precision as activations gain: split the factor evenly.
    factors = relative_ranges if all_depthwise else np.sqrt(relative_ranges)
    return np.where(ranges > 0, np.maximum(factors, _MIN_FACTOR), 1).astype(np.float32)


def _apply(
    graph: QuantizationGraph, source: str, group: _TensorGroup, factors: NDArray[np.float32]
) -> dict[str, tuple[str, Array]]:
    layers = {layer.node.output[0]: layer for layer in group.layers}
    group_outputs = {*layers, *group.tensors}
    # Broadcastable shapes: [C], or [C, 1, …].
    aligned_factors = (
        factors.reshape(-1, *(1,) * (graph.constants[group.layers[0].weights].ndim - 2)) if group.axis == 1 else factors
    )
    factor, inverse = (
        graph.constant(f"{source}_factor", aligned_factors),
        graph.constant(f"{source}_inverse", 1 / aligned_factors),
    )
    equalized = graph.unique_name(f"{source}_even")
    scaled_tensors: dict[str, tuple[str, Array]] = {}
    for name in group.tensors:
        users = [node for node in graph.nodes if name in node.input]
        current = equalized if name == source else name
        scaled_tensors[current] = name, 1 / aligned_factors
        for node in users:
            if node.output[0] in group_outputs:
                replace_input(node, name, current)
        outside_users = [node for node in users if node.output[0] not in group_outputs]
        new_nodes = [helper.make_node("Mul", [source, inverse], [equalized], name=equalized)] if name == source else []
        if outside_users:
            restored_name = graph.unique_name(f"{name}_back")
            scaled_tensors[restored_name] = name, np.ones((), np.float32)
            new_nodes.append(helper.make_node("Mul", [current, factor], [restored_name], name=restored_name))
            for node in outside_users:
                replace_input(node, name, restored_name)
        graph.insert_after(name, new_nodes)
    for layer in group.layers:
        weights = graph.constants[layer.weights] * _weight_factors(layer, graph.constants[layer.weights], factors)
        layer.node.input[1] = graph.constant(f"{layer.weights}_even", weights)
    return scaled_tensors


def _weight_factors(layer: Layer, weights: NDArray[Any], factors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the factors of the weights, broadcastable to their shape."""
    if layer.op != "Conv":
        return factors if layer.axis == 0 else factors[:, None]
    # [groups, 1, entries of a group], repeated for each output of the group
    by_group = np.repeat(factors.reshape(layer.groups, 1, -1), weights.shape[0] // layer.groups, axis=1)
    return by_group.reshape(*weights.shape[:2], *(1,) * (weights.ndim - 2))

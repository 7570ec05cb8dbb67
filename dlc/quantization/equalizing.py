"""Channels of one range: what some channels have too little of is multiplied in, and taken out again by weights.

    conv(x, w)  =  conv(x · 1/e, w · e),  with e for each channel

One scale serves all channels of a tensor, so that those with small values have few steps. (Xiao and others, SmoothQuant, 2023.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from dlc.quantization.calibration import Floats
from dlc.quantization.graph import Graph, read_other
from dlc.quantization.placing import Layer, tensors_of
from dlc.weights import Array

# Moves that keep channels where they are, and commute with factors above zero.
_KEEP_CHANNELS = ("MaxPool", "Pad", "Identity")
# Channels of which little was seen may have more in other data.
_LEAST = 1 / 8
# Of the noise of rounding: what has to go for a factor to be worth its multiplication.
_WORTH = 0.6


@dataclass(frozen=True)
class _Family:
    """A tensor that layers read, what it is moved to, those layers, and the axis of its channels."""

    tensors: tuple[str, ...]
    layers: tuple[Layer, ...]
    axis: int


def equalize_channels(graph: Graph, layers: Sequence[Layer], floats: Floats) -> dict[str, tuple[str, Array]]:
    """Gives the channels of tensors that layers read ranges that are alike, where that takes enough of their noise away.

    Returns the tensors that are other ones times a factor now.
    """
    families = _families(graph, layers)
    most: dict[str, NDArray[np.float64]] = {}
    for run in floats.runs("looking at channels"):
        for name, family in families.items():
            channels = np.moveaxis(np.abs(run[name]), family.axis, 0)
            most[name] = np.maximum(most.get(name, 0), channels.reshape(len(channels), -1).max(1, initial=0))
    scaled: dict[str, tuple[str, Array]] = {}
    for name, family in families.items():
        factors = _factors(most[name], family)
        if factors is not None:
            scaled |= _apply(graph, name, family, factors)
    return scaled


def _families(graph: Graph, layers: Sequence[Layer]) -> dict[str, _Family]:
    """By the tensor that all others of a family are moved from."""
    producers, readers = graph.producers, graph.readers
    by_source: dict[str, list[str]] = {}
    for name, source in tensors_of(graph, layers).items():
        by_source.setdefault(source, []).append(name)
    found: dict[str, _Family] = {}
    for source, names in by_source.items():
        members = tuple(layer for layer in layers if layer.data in names)
        convolutions = {layer.op == "Conv" for layer in members}
        moved = [producers[name] for name in names if name != source]
        allowed = _KEEP_CHANNELS if convolutions == {True} else ("Identity",)
        # An output, or what a graph inside of a node reads, has to stay what it is.
        seen = [n for n in names if n != source and (n in graph.outputs or any(n not in r.input for r in readers[n]))]
        if len(convolutions) == 1 and all(node.op_type in allowed for node in moved) and not seen:
            found[source] = _Family(tuple(names), members, 1 if convolutions == {True} else -1)
    return found


def _factors(ranges: NDArray[np.float64], family: _Family) -> NDArray[np.float32] | None:
    """What each channel is divided by; None where it is not worth it."""
    # What is no finite number is found, and told of, where ranges are chosen.
    if not 0 < ranges.max() < np.inf:
        return None
    shares = ranges / ranges.max()
    # Noise goes with the square of a step. A channel that is zero has none.
    if np.mean(shares[ranges > 0] ** 2) > _WORTH:
        return None
    alone = all(layer.op == "Conv" and layer.groups == len(ranges) for layer in family.layers)
    # Weights of channels that are summed share a scale, and lose as much as data gains: both get half.
    factors = shares if alone else np.sqrt(shares)
    return np.where(ranges > 0, np.maximum(factors, _LEAST), 1).astype(np.float32)


def _apply(graph: Graph, source: str, family: _Family, factors: NDArray[np.float32]) -> dict[str, tuple[str, Array]]:
    layers = {layer.node.output[0]: layer for layer in family.layers}
    within = {*layers, *family.tensors}
    # As they broadcast: [C], or [C, 1, …].
    along = factors.reshape(-1, *(1,) * (graph.constants[family.layers[0].weights].ndim - 2)) if family.axis == 1 else factors
    factor, inverse = graph.constant(f"{source}_factor", along), graph.constant(f"{source}_inverse", 1 / along)
    even = graph.new_name(f"{source}_even")
    scaled: dict[str, tuple[str, Array]] = {}
    for name in family.tensors:
        readers = [node for node in graph.nodes if name in node.input]
        now = even if name == source else name
        scaled[now] = name, 1 / along
        for node in readers:
            if node.output[0] in within:
                read_other(node, name, now)
        others = [node for node in readers if node.output[0] not in within]
        made = [helper.make_node("Mul", [source, inverse], [even], name=even)] if name == source else []
        if others:
            back = graph.new_name(f"{name}_back")
            scaled[back] = name, np.ones((), np.float32)
            made.append(helper.make_node("Mul", [now, factor], [back], name=back))
            for node in others:
                read_other(node, name, back)
        graph.put_behind(name, made)
    for layer in family.layers:
        weights = graph.constants[layer.weights] * _along_entries(layer, graph.constants[layer.weights], factors)
        layer.node.input[1] = graph.constant(f"{layer.weights}_even", weights)
    return scaled


def _along_entries(layer: Layer, weights: NDArray[Any], factors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The factor of each weight."""
    if layer.op != "Conv":
        return factors if layer.axis == 0 else factors[:, None]
    # [groups, 1, entries of a group], for each output of the group
    by_group = np.repeat(factors.reshape(layer.groups, 1, -1), weights.shape[0] // layer.groups, axis=1)
    return by_group.reshape(*weights.shape[:2], *(1,) * (weights.ndim - 2))

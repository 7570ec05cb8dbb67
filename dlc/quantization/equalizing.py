"""Channels of one range: what some channels have too little of is multiplied in, and taken out again by weights.

    conv(x, w)  =  conv(x · 1/e, w · e),  with e for each channel

One scale serves all channels of a tensor, so that those with small values have few steps. (Xiao and others, SmoothQuant, 2023.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from dlc.quantization.calibration import Runner, called
from dlc.quantization.graph import Graph, read_other
from dlc.quantization.placing import Layer, tensors_of
from dlc.quantization.samples import Samples

# Moves that keep channels where they are, and commute with factors above zero.
_KEEP_CHANNELS = ("MaxPool", "Pad", "Identity")
# Sets of inputs that are looked at.
_SETS = 24
# Of the noise of rounding: what has to go for a factor to be worth its multiplication.
_WORTH = 0.6


@dataclass(frozen=True)
class _Family:
    """A tensor that layers read, what it is moved to, those layers, and the axis of its channels."""

    tensors: tuple[str, ...]
    layers: tuple[Layer, ...]
    axis: int


def equalize_channels(graph: Graph, layers: Sequence[Layer], samples: Samples, runner: Runner) -> list[str]:
    """Gives the channels of tensors that layers read ranges that are alike, where that takes enough of their noise away.

    Returns the tensors.
    """
    families = _families(graph, layers)
    ranges = _ranges(graph, families, samples.some(_SETS), runner)
    done: list[str] = []
    for name, family in families.items():
        factors = _factors(ranges[name], family)
        if factors is not None:
            _apply(graph, name, family, factors)
            done.append(name)
    return done


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


def _ranges(graph: Graph, families: Mapping[str, _Family], samples: Samples, runner: Runner) -> dict[str, NDArray[np.float64]]:
    """The largest magnitude in each channel."""
    inputs, outputs = {value.name for value in graph.inputs}, graph.outputs
    model = runner.compiled(graph.written(outputs=[n for n in families if n not in inputs and n not in outputs]), "the model")
    found: dict[str, NDArray[np.float64]] = {}
    for k, sample in enumerate(samples):
        results = {**sample, **called(model, sample, samples.source)}
        for name, family in families.items():
            channels = np.moveaxis(np.abs(results[name]), family.axis, 0)
            most = channels.reshape(len(channels), -1).max(1, initial=0)
            found[name] = np.maximum(found.get(name, 0), most)
        runner.told("looking at channels", k + 1, len(samples))
    return found


def _factors(ranges: NDArray[np.float64], family: _Family) -> NDArray[np.float32] | None:
    """What each channel is divided by; None where it is not worth it."""
    shares = ranges / (ranges.max() or 1)
    # Noise goes with the square of a step. A channel that is zero stays it.
    if np.mean(shares**2) > _WORTH:
        return None
    alone = all(layer.op == "Conv" and layer.groups == len(ranges) for layer in family.layers)
    # Weights of channels that are summed share a scale, and lose as much as data gains: both get half.
    factors = shares if alone else np.sqrt(shares)
    return np.maximum(factors, 1 / 64).astype(np.float32)


def _apply(graph: Graph, source: str, family: _Family, factors: NDArray[np.float32]) -> None:
    layers = {layer.node.output[0]: layer for layer in family.layers}
    within = {*layers, *family.tensors}
    # As they broadcast: [C], or [C, 1, …].
    along = factors.reshape(-1, *(1,) * (graph.constants[family.layers[0].weights].ndim - 2)) if family.axis == 1 else factors
    factor, inverse = graph.constant(f"{source}_factor", along), graph.constant(f"{source}_inverse", 1 / along)
    even = graph.new_name(f"{source}_even")
    for name in family.tensors:
        readers = [node for node in graph.nodes if name in node.input]
        scaled = even if name == source else name
        for node in readers:
            if node.output[0] in within:
                read_other(node, name, scaled)
        others = [node for node in readers if node.output[0] not in within]
        made = [helper.make_node("Mul", [source, inverse], [even], name=even)] if name == source else []
        if others:
            back = graph.new_name(f"{name}_back")
            made.append(helper.make_node("Mul", [scaled, factor], [back], name=back))
            for node in others:
                read_other(node, name, back)
        graph.put_behind(name, made)
    for layer in family.layers:
        weights = graph.constants[layer.weights] * _along_entries(layer, graph.constants[layer.weights], factors)
        layer.node.input[1] = graph.constant(f"{layer.weights}_even", weights)


def _along_entries(layer: Layer, weights: NDArray[Any], factors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The factor of each weight."""
    if layer.op != "Conv":
        return factors if layer.axis == 0 else factors[:, None]
    # [groups, 1, entries of a group], for each output of the group
    by_group = np.repeat(factors.reshape(layer.groups, 1, -1), weights.shape[0] // layer.groups, axis=1)
    return by_group.reshape(*weights.shape[:2], *(1,) * (weights.ndim - 2))

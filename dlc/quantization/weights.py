"""Weights as integers of 8 bits with a sign, without a zero point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.quantization.graph import Graph
from dlc.quantization.placing import Layer

_MOST = 127
_LEAST_SCALE = 2.0**-120
# What a bias may be, as an integer of 32 bits, with room for the sums that it is added to.
_MOST_BIAS = 2.0**30


@dataclass(frozen=True)
class QuantisedWeights:
    """Integers `values`, times one `scale` or one for each place of `axis`."""

    values: NDArray[np.int8]
    scale: NDArray[np.float32]
    axis: int

    @property
    def floats(self) -> NDArray[np.float32]:
        """What they stand for."""
        return self.values * _along(self.scale, self.values.ndim, self.axis)


def quantised_weights(graph: Graph, layer: Layer, data_scale: float, *, per_channel: bool) -> QuantisedWeights:
    """A layer's weights, scaled by the largest of each output channel, or of all.

    A bias is added to sums in steps of both scales: where that would be more steps than an integer has, the scale is larger.
    """
    weights = graph.constants[layer.weights]
    others = tuple(a for a in range(weights.ndim) if a != layer.axis)
    most = np.abs(weights).max(axis=others, initial=0)
    if layer.bias is not None:
        most = np.maximum(most, np.abs(graph.constants[layer.bias]) / (data_scale * _MOST_BIAS) * _MOST)
    if not per_channel:
        most = most.max(initial=0)
    scale = np.where(most / _MOST > _LEAST_SCALE, most / _MOST, 1).astype(np.float32)
    steps = np.rint(weights / _along(scale, weights.ndim, layer.axis))
    return QuantisedWeights(np.clip(steps, -_MOST, _MOST).astype(np.int8), scale, layer.axis)


def _along(scale: NDArray[Any], rank: int, axis: int) -> NDArray[Any]:
    return scale.reshape(-1, *(1,) * (rank - 1 - axis)) if scale.ndim else scale

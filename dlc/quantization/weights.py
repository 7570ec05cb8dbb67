"""Weights as integers of 8 bits with a sign, without a zero point, rounded so that a layer's sums change least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.quantization.graph import Graph
from dlc.quantization.moments import Moments
from dlc.quantization.placing import Layer

_MOST = 127
_LEAST_SCALE = 2.0**-120
# What a bias may be, as an integer of 32 bits, with room for the sums that it is added to.
_MOST_BIAS = 2.0**30
# Entries that are rounded before the rest hears of it.
_BLOCK = 128
# Of the mean square of the entries: what is added to all of them, so that those that hardly vary count.
_DAMPING = 0.01


@dataclass(frozen=True)
class QuantisedWeights:
    """Integers `values`, times one `scale` or one for each place of `axis`; and the bias to add then."""

    values: NDArray[np.int8]
    scale: NDArray[np.float32]
    axis: int
    bias: NDArray[np.float32] | None

    @property
    def floats(self) -> NDArray[np.float32]:
        """What they stand for."""
        return self.values.astype(np.float32) * _along(self.scale, self.values.ndim, self.axis)


def quantised_weights(
    graph: Graph, layer: Layer, data_scale: float, moments: Moments | None, *, per_channel: bool
) -> QuantisedWeights:
    """A layer's weights, scaled by the largest of each output channel, or of all.

    With `moments`, what it is multiplied by, entries are rounded one after the other, and each error is made up for by those
    that come after it; what is left of its mean goes into the bias. A bias is added to sums in steps of both scales: where that
    would be more steps than an integer has, the scale is larger.
    """
    weights = graph.constants[layer.weights]
    bias = graph.constants[layer.bias] if layer.bias is not None else None
    others = tuple(a for a in range(weights.ndim) if a != layer.axis)
    most = np.abs(weights).max(axis=others, initial=0)
    if bias is not None:
        most = np.maximum(most, np.abs(bias) / (data_scale * _MOST_BIAS) * _MOST)
    if not per_channel:
        most = most.max(initial=0)
    scale = np.where(most / _MOST > _LEAST_SCALE, most / _MOST, 1).astype(np.float32)
    wide = _along(scale, weights.ndim, layer.axis)
    if moments is None:
        return QuantisedWeights(_nearest(weights / wide).astype(np.int8), scale, layer.axis, bias)
    # Output channels first.
    rows = np.moveaxis(weights / wide, layer.axis, 0)
    steps = rows.reshape(moments.groups, -1, moments.products.shape[-1])
    rounded = _compensated(steps, moments.products / moments.count)
    values = np.moveaxis(rounded.reshape(rows.shape), 0, layer.axis).astype(np.int8)
    if bias is not None:
        error = np.einsum("gok,gk->go", rounded - steps, moments.sum / moments.count).reshape(-1)
        bias = (bias - error * scale).astype(np.float32)
    return QuantisedWeights(values, scale, layer.axis, bias)


# min (w - q) · H · (w - q)ᵀ, with H = E[x · xᵀ], one entry after the other
# (Frantar and others, GPTQ, 2023: the order, the blocks and the factor of the inverse are theirs)
def _compensated(steps: NDArray[Any], products: NDArray[Any]) -> NDArray[Any]:
    """Weights [groups, outputs, entries] in steps, rounded."""
    entries = steps.shape[-1]
    diagonal = np.einsum("gkk->gk", products)
    # Each group has an order of its own: entries that vary most first.
    order = np.argsort(-diagonal, axis=1, kind="stable")
    h = np.take_along_axis(np.take_along_axis(products, order[:, :, None], 1), order[:, None, :], 2).astype(np.float64)
    h[:, np.arange(entries), np.arange(entries)] += _DAMPING * diagonal.mean(1, keepdims=True) + 1e-12
    factor = np.linalg.cholesky(np.linalg.inv(h)).transpose(0, 2, 1)
    # [groups, entries, outputs]: what is rounded at once lies together.
    left = np.take_along_axis(steps.transpose(0, 2, 1), order[:, :, None], 1).astype(np.float64)
    rounded, errors = np.empty_like(left), np.empty_like(left)
    for start in range(0, entries, _BLOCK):
        end = min(start + _BLOCK, entries)
        for k in range(start, end):
            rounded[:, k] = _nearest(left[:, k])
            errors[:, k] = (left[:, k] - rounded[:, k]) / factor[:, k, k, None]
            left[:, k + 1 : end] -= factor[:, k, k + 1 : end, None] * errors[:, k, None]
        left[:, end:] -= factor[:, start:end, end:].transpose(0, 2, 1) @ errors[:, start:end]
    return np.take_along_axis(rounded, np.argsort(order, axis=1)[:, :, None], 1).transpose(0, 2, 1)


def _nearest(steps: NDArray[Any]) -> NDArray[Any]:
    return np.clip(np.rint(steps), -_MOST, _MOST)


def _along(scale: NDArray[Any], rank: int, axis: int) -> NDArray[Any]:
    return scale.reshape(-1, *(1,) * (rank - 1 - axis)) if scale.ndim else scale

"""Quantize weights to symmetric int8, with GPTQ rounding that minimizes the change of the layer's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.quantization.graph import QuantizationGraph
from dlc.quantization.layer_selection import Layer
from dlc.quantization.moments import Moments

# Maximum magnitude of weights of 8 bits, and of 7 bits (a reduced range).
_MAX_INT8, _MAX_INT7 = 127, 64
_MIN_SCALE = 2.0**-120
# Maximum magnitude of an int32 bias, in quantization steps; leaves room for the accumulated products.
_MAX_BIAS_STEPS = 2.0**30
# Number of entries that are rounded before the remaining ones are updated.
_BLOCK_ENTRIES = 128
# GPTQ damping: this fraction of the mean diagonal is added to the diagonal of the Hessian.
_DAMPING_FRACTION = 0.01
# Makes the Hessian of inputs that are all zero invertible.
_DAMPING_OFFSET = 1e-12


@dataclass(frozen=True)
class QuantizedWeights:
    """Int8 `values`, with one `scale` or one per index of `axis`, and the corrected bias."""

    values: NDArray[np.int8]
    scale: NDArray[np.float32]
    axis: int
    bias: NDArray[np.float32] | None

    @property
    def floats(self) -> NDArray[np.float32]:
        """The dequantized weights."""
        return self.values.astype(np.float32) * _broadcast_scale(self.scale, self.values.ndim, self.axis)


def quantize_weights(
    graph: QuantizationGraph,
    layer: Layer,
    data_scale: float,
    moments: Moments | None,
    *,
    per_channel: bool,
    reduce_range: bool = False,
) -> QuantizedWeights:
    """Quantize a layer's weights. The scale follows from the largest weight of each output channel, or of all channels.

    With `reduce_range`, weights are integers from -64 to 64, else from -127 to 127.

    With `moments` of the layer's input, weights are rounded sequentially, and later entries compensate earlier rounding
    errors (GPTQ). The remaining mean error is subtracted from the bias. The bias is stored in steps of data scale
    times weight scale; the weight scale is increased if the bias would exceed int32.
    """
    weights = graph.constants[layer.weights]
    bias = graph.constants[layer.bias] if layer.bias is not None else None
    reduced_axes = tuple(a for a in range(weights.ndim) if a != layer.axis)
    max_magnitude, limit = np.abs(weights).max(axis=reduced_axes, initial=0), _MAX_INT7 if reduce_range else _MAX_INT8
    if bias is not None:
        max_magnitude = np.maximum(max_magnitude, np.abs(bias) / (data_scale * _MAX_BIAS_STEPS) * limit)
    if not per_channel:
        max_magnitude = max_magnitude.max(initial=0)
    scale = np.where(max_magnitude / limit > _MIN_SCALE, max_magnitude / limit, 1).astype(np.float32)
    scale_per_weight = _broadcast_scale(scale, weights.ndim, layer.axis)
    if moments is None:
        return QuantizedWeights(_round_to_nearest(weights / scale_per_weight, limit).astype(np.int8), scale, layer.axis, bias)
    # The output channels come first.
    rows = np.moveaxis(weights / scale_per_weight, layer.axis, 0)
    steps = rows.reshape(moments.groups, -1, moments.products.shape[-1])
    rounded = _gptq_round(steps, moments.products / moments.count, limit)
    values = np.moveaxis(rounded.reshape(rows.shape), 0, layer.axis).astype(np.int8)
    if bias is not None:
        error = np.einsum("gok,gk->go", rounded - steps, moments.sum / moments.count).reshape(-1)
        bias = (bias - error * scale).astype(np.float32)
    return QuantizedWeights(values, scale, layer.axis, bias)


# GPTQ: min (w - q) · H · (w - q)ᵀ, with H = E[x · xᵀ], entry by entry (Frantar et al., 2023; the order, the
# blocks and the Cholesky factor of the inverse follow the paper).
def _gptq_round(steps: NDArray[Any], products: NDArray[Any], limit: int) -> NDArray[Any]:
    """Round weights [groups, outputs, entries], given in quantization steps, to integers up to `limit`."""
    entries = steps.shape[-1]
    diagonal = np.einsum("gkk->gk", products)
    # Each group is ordered separately, entries with the largest variance first.
    order = np.argsort(-diagonal, axis=1, kind="stable")
    h = np.take_along_axis(np.take_along_axis(products, order[:, :, None], 1), order[:, None, :], 2).astype(np.float64)
    h[:, np.arange(entries), np.arange(entries)] += _DAMPING_FRACTION * diagonal.mean(1, keepdims=True) + _DAMPING_OFFSET
    factor = np.linalg.cholesky(np.linalg.inv(h)).transpose(0, 2, 1)
    # [groups, entries, outputs]: the outputs of an entry, which are rounded at once, are contiguous.
    remaining_steps = np.take_along_axis(steps.transpose(0, 2, 1), order[:, :, None], 1).astype(np.float64)
    rounded, errors = np.empty_like(remaining_steps), np.empty_like(remaining_steps)
    for start in range(0, entries, _BLOCK_ENTRIES):
        end = min(start + _BLOCK_ENTRIES, entries)
        for k in range(start, end):
            rounded[:, k] = _round_to_nearest(remaining_steps[:, k], limit)
            errors[:, k] = (remaining_steps[:, k] - rounded[:, k]) / factor[:, k, k, None]
            remaining_steps[:, k + 1 : end] -= factor[:, k, k + 1 : end, None] * errors[:, k, None]
        remaining_steps[:, end:] -= factor[:, start:end, end:].transpose(0, 2, 1) @ errors[:, start:end]
    return np.take_along_axis(rounded, np.argsort(order, axis=1)[:, :, None], 1).transpose(0, 2, 1)


def _round_to_nearest(steps: NDArray[Any], limit: int) -> NDArray[Any]:
    return np.clip(np.rint(steps), -limit, limit)


def _broadcast_scale(scale: NDArray[Any], rank: int, axis: int) -> NDArray[Any]:
    return scale.reshape(-1, *(1,) * (rank - 1 - axis)) if scale.ndim else scale

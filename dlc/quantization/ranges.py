"""Choose the range of an activation, and from it the scale and zero point: minmax, percentile, MSE or entropy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dlc.plugins.tables import ExtensionTable
from dlc.quantization.histogram import Histogram

if TYPE_CHECKING:
    from dlc.quantization.settings import QuantizationSettings

# Number of candidate range ends on each side of zero.
_NUM_CANDIDATES = 64
# Number of steps between 256 codes of 8 bits.
_NUM_STEPS = 255
# Prevents a division by zero for an empty range.
_MIN_RANGE_WIDTH = 1e-30
# Weight of the probability in empty bins, where the KL divergence is infinite.
_EMPTY_BIN_WEIGHT = 1e3
# The inverse of a smaller scale overflows in float32.
_MIN_SCALE = 2.0**-120


@dataclass(frozen=True)
class QuantizationParameters:
    """Scale, zero point and dtype of a quantized tensor: q represents `(q - zero_point) · scale`."""

    scale: np.float32
    zero_point: int
    dtype: np.dtype[Any]


def choose_parameters(histogram: Histogram, settings: QuantizationSettings) -> QuantizationParameters:
    """Return the scale and zero point of an activation with these values."""
    low, high = METHODS[settings.method](histogram, settings)
    lowest_code = -128 if settings.activations == "s8" else 0
    dtype = np.dtype(np.int8 if lowest_code else np.uint8)
    if settings.symmetric:
        max_magnitude = max(-low, high)
        # The same number of steps on both sides of zero.
        return QuantizationParameters(_scale(max_magnitude / 127), lowest_code + 128, dtype)
    scale = _scale((high - low) / _NUM_STEPS)
    return QuantizationParameters(scale, lowest_code + int(np.clip(np.rint(-low / scale), 0, _NUM_STEPS)), dtype)


def _scale(value: float) -> np.float32:
    """Return a nonzero scale; a tensor of zeros gets 1."""
    return np.float32(value) if value > _MIN_SCALE else np.float32(1)


# minmax: the range of all values.
def _minmax(histogram: Histogram, settings: QuantizationSettings) -> tuple[float, float]:
    return histogram.min_value, histogram.max_value


# percentile: the smallest range with a percentage of the values; half of the clipped values are on each side.
def _percentile(histogram: Histogram, settings: QuantizationSettings) -> tuple[float, float]:
    values, fractions = histogram.occupied()
    cumulative_shares = np.cumsum(fractions)
    tail_fraction = (1 - settings.percentile / 100) / 2
    low = values[int(np.searchsorted(cumulative_shares, tail_fraction))]
    high = values[min(int(np.searchsorted(cumulative_shares, 1 - tail_fraction)), len(values) - 1)]
    return max(min(float(low), 0.0), histogram.min_value), min(max(float(high), 0.0), histogram.max_value)


# mse: min Σ p(x) · (x - q(x))²
def _mse(histogram: Histogram, settings: QuantizationSettings) -> tuple[float, float]:
    values, fractions = histogram.occupied()

    def error(low: float, high: float) -> float:
        return float(fractions @ (values - _fake_quantize(values, low, high)) ** 2)

    return _search_range(histogram, settings, error)


# entropy: min Σ p(x) · log(p(x) / q(x)). p has the clipped values at its ends; q distributes the probability of each
# quantization step evenly over its occupied bins (Migacz, 8-bit inference with TensorRT, 2017). Zeros are excluded, because
# zero is exact in every range.
def _entropy(histogram: Histogram, settings: QuantizationSettings) -> tuple[float, float]:
    values, fractions = histogram.occupied()
    fractions = np.where(values == 0, 0, fractions)

    def divergence(low: float, high: float) -> float:
        is_in_range = (values >= low) & (values <= high)
        if not is_in_range.any():
            return np.inf
        values_inside, p = values[is_in_range], fractions[is_in_range].copy()
        steps = np.rint((values_inside - low) / max(high - low, _MIN_RANGE_WIDTH) * _NUM_STEPS).astype(np.int64)
        filled = p > 0
        total = np.bincount(steps, p, minlength=_NUM_STEPS + 1)
        count = np.bincount(steps, filled, minlength=_NUM_STEPS + 1)
        q = np.where(filled, total[steps] / np.maximum(count[steps], 1), 0)
        p[0] += fractions[values < low].sum()
        p[-1] += fractions[values > high].sum()
        # Clipped values may fall into a bin that was empty.
        both_positive = (p > 0) & (q > 0)
        missed = p[(p > 0) & (q == 0)].sum()
        return float(p[both_positive] @ np.log(p[both_positive] / (q[both_positive] / q.sum()))) + missed * _EMPTY_BIN_WEIGHT

    return _search_range(histogram, settings, divergence)


# The methods by name: each returns the range of an activation.
METHODS: ExtensionTable[str, Callable[[Histogram, QuantizationSettings], tuple[float, float]]] = ExtensionTable(
    "calibration_methods", {"minmax": _minmax, "percentile": _percentile, "entropy": _entropy, "mse": _mse}
)


def _fake_quantize(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Quantize and dequantize values with 8 bits in the range `low` to `high`."""
    scale = max(high - low, _MIN_RANGE_WIDTH) / _NUM_STEPS
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(values / scale) + zero, 0, _NUM_STEPS) - zero) * scale


def _search_range(
    histogram: Histogram, settings: QuantizationSettings, cost: Callable[[float, float], float]
) -> tuple[float, float]:
    """Return the range of minimum cost among fractions of the observed range: first the upper end, then the lower end, twice.

    A symmetric range has a single end to search.
    """
    low, high = histogram.min_value, histogram.max_value
    fractions = np.arange(1, _NUM_CANDIDATES + 1) / _NUM_CANDIDATES
    if settings.symmetric:
        max_magnitude = max(-low, high)
        end = min((cost(-max_magnitude * fraction, max_magnitude * fraction), -fraction) for fraction in fractions)[1]
        return max_magnitude * end, -max_magnitude * end
    for _ in range(2):
        if histogram.max_value > 0:
            high = -min((cost(low, histogram.max_value * fraction), -histogram.max_value * fraction) for fraction in fractions)[
                1
            ]
        if histogram.min_value < 0:
            low = min((cost(histogram.min_value * fraction, high), histogram.min_value * fraction) for fraction in fractions)[1]
    return low, high

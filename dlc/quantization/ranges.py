"""From what values a tensor takes to a scale and a zero point: four methods of choosing what is cut off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.quantization.histogram import Histogram
from dlc.quantization.settings import Settings

# In how many places of each half a range may end.
_CANDIDATES = 64
_STEPS = 255
# A scale below this one has no inverse in f32.
_LEAST_SCALE = 2.0**-120


@dataclass(frozen=True)
class Parameters:
    """`(q - zero_point) · scale` is what an integer q of `dtype` stands for."""

    scale: np.float32
    zero_point: int
    dtype: np.dtype[Any]


def parameters_of(histogram: Histogram, settings: Settings) -> Parameters:
    """The scale and zero point of activations that took these values."""
    low, high = _METHODS[settings.method](histogram, settings)
    least = -128 if settings.activations == "s8" else 0
    dtype = np.dtype(np.int8 if least else np.uint8)
    if settings.symmetric:
        most = max(-low, high)
        # As many steps on both sides of zero.
        return Parameters(_scale(most / 127), least + 128, dtype)
    scale = _scale((high - low) / _STEPS)
    return Parameters(scale, least + int(np.clip(np.rint(-low / scale), 0, _STEPS)), dtype)


def _scale(value: float) -> np.float32:
    """A scale that divides: of a tensor that is zero everywhere, any."""
    return np.float32(value) if value > _LEAST_SCALE else np.float32(1)


# All values.
def _minmax(histogram: Histogram, settings: Settings) -> tuple[float, float]:
    return histogram.least, histogram.largest


# The least range that holds a share of the values, half of the others on each side.
def _percentile(histogram: Histogram, settings: Settings) -> tuple[float, float]:
    values, shares = histogram.occupied()
    below = np.cumsum(shares)
    rest = (1 - settings.percentile / 100) / 2
    low = values[int(np.searchsorted(below, rest))]
    high = values[min(int(np.searchsorted(below, 1 - rest)), len(values) - 1)]
    return max(min(float(low), 0.0), histogram.least), min(max(float(high), 0.0), histogram.largest)


# min Σ p(x) · (x - q(x))²
def _mse(histogram: Histogram, settings: Settings) -> tuple[float, float]:
    values, shares = histogram.occupied()

    def error(low: float, high: float) -> float:
        return float(shares @ (values - _rounded(values, low, high)) ** 2)

    return _least(histogram, settings, error)


# min Σ p(x) · log(p(x) / q(x)): p with what is cut off at its ends, q with one share for each step, spread over what is in it
# (Migacz, 8-bit inference with TensorRT, 2017). Zero is exact in every range: the many that an activation makes do not count.
def _entropy(histogram: Histogram, settings: Settings) -> tuple[float, float]:
    values, shares = histogram.occupied()
    shares = np.where(values == 0, 0, shares)

    def divergence(low: float, high: float) -> float:
        inside = (values >= low) & (values <= high)
        if not inside.any():
            return np.inf
        kept, p = values[inside], shares[inside].copy()
        steps = np.rint((kept - low) / max(high - low, 1e-30) * _STEPS).astype(np.int64)
        filled = p > 0
        total = np.bincount(steps, p, minlength=_STEPS + 1)
        count = np.bincount(steps, filled, minlength=_STEPS + 1)
        q = np.where(filled, total[steps] / np.maximum(count[steps], 1), 0)
        p[0] += shares[values < low].sum()
        p[-1] += shares[values > high].sum()
        # What is cut off may fall on an end that had nothing.
        both = (p > 0) & (q > 0)
        missed = p[(p > 0) & (q == 0)].sum()
        return float(p[both] @ np.log(p[both] / (q[both] / q.sum()))) + missed * 1e3

    return _least(histogram, settings, divergence)


_METHODS: dict[str, Callable[[Histogram, Settings], tuple[float, float]]] = {
    "minmax": _minmax,
    "percentile": _percentile,
    "entropy": _entropy,
    "mse": _mse,
}


def _rounded(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Values as integers of 8 bits stand for them, whose range is `low` to `high`."""
    scale = max(high - low, 1e-30) / _STEPS
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(values / scale) + zero, 0, _STEPS) - zero) * scale


def _least(histogram: Histogram, settings: Settings, cost: Callable[[float, float], float]) -> tuple[float, float]:
    """The range of least cost: its upper end first, then its lower one, each among parts of what there is.

    A symmetric range has one end to look for.
    """
    low, high = histogram.least, histogram.largest
    parts = np.arange(1, _CANDIDATES + 1) / _CANDIDATES
    if settings.symmetric:
        most = max(-low, high)
        end = min((cost(-most * part, most * part), -part) for part in parts)[1]
        return most * end, -most * end
    for _ in range(2):
        if histogram.largest > 0:
            high = -min((cost(low, histogram.largest * part), -histogram.largest * part) for part in parts)[1]
        if histogram.least < 0:
            low = min((cost(histogram.least * part, high), histogram.least * part) for part in parts)[1]
    return low, high

"""Histograms of tensor values whose bin width grows with the values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.errors import DlcError

# Number of bins, half of them for negative values. An 8-bit quantization step spans at least four bins.
NUM_BINS = 4096
_HALF_BINS = NUM_BINS // 2


class Histogram:
    """Counts of values in bins around zero whose width is a power of two, with the minimum and maximum.

    The size is constant: for a value outside the range, pairs of bins are merged.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(NUM_BINS, np.int64)
        self.exponent = -126
        self.min_value, self.max_value = 0.0, 0.0

    def add(self, values: NDArray[Any], where: str) -> None:
        """Count values. Raises DlcError for NaN or infinity."""
        if not values.size:
            return
        min_value, max_value = float(values.min()), float(values.max())
        if not np.isfinite([min_value, max_value]).all():
            invalid = "NaN" if np.isnan([min_value, max_value]).any() else "an infinity"
            raise DlcError(
                f"{where}: the float model computes {invalid}; `dlc run MODEL --first-nan` finds the op that produces a NaN"
            )
        self.min_value, self.max_value = min(self.min_value, min_value), max(self.max_value, max_value)
        max_magnitude = max(-min_value, max_value)
        while max_magnitude >= _HALF_BINS * 2.0**self.exponent:
            self._double_bin_width()
        bins = np.floor(values.ravel() * np.float32(2.0**-self.exponent)).astype(np.int32)
        self.counts += np.bincount(bins + _HALF_BINS, minlength=NUM_BINS)

    def _double_bin_width(self) -> None:
        pairs = self.counts.reshape(-1, 2).sum(1)
        self.counts = np.zeros(NUM_BINS, np.int64)
        self.counts[_HALF_BINS // 2 : _HALF_BINS // 2 + _HALF_BINS] = pairs
        self.exponent += 1

    @property
    def centres(self) -> NDArray[np.float64]:
        """The value that each bin represents; the bin at zero represents zero exactly."""
        centres: NDArray[np.float64] = (np.arange(NUM_BINS, dtype=np.float64) - _HALF_BINS + 0.5) * 2.0**self.exponent
        centres[_HALF_BINS] = 0.0
        return centres

    def occupied(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the values between the first and the last occupied bin, and the relative frequency of each."""
        nonzero_bins = np.flatnonzero(self.counts)
        if not nonzero_bins.size:
            return np.zeros(1), np.ones(1)
        occupied_bins = slice(nonzero_bins[0], nonzero_bins[-1] + 1)
        return self.centres[occupied_bins], self.counts[occupied_bins] / self.counts.sum()

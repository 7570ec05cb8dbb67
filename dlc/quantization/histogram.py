"""What values a tensor takes, counted as they come: a histogram whose bins grow with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.errors import DlcError

# Of which half are for negative numbers. A step of 8 bits is at least four of them wide.
BINS = 4096
_HALF = BINS // 2


class Histogram:
    """Counts of values in bins of one width, a power of two, around zero; the least and the largest of them.

    Its size does not hang on how many values it counts: where one lies outside, bins are merged by two.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.exponent = -126
        self.least, self.largest = 0.0, 0.0

    def add(self, values: NDArray[Any], where: str) -> None:
        """Counts values. Raises DlcError for one that is no finite number."""
        if not values.size:
            return
        least, largest = float(values.min()), float(values.max())
        if not np.isfinite([least, largest]).all():
            raise DlcError(
                f"{where}: {'a NaN' if np.isnan([least, largest]).any() else 'an infinity'} in what the model computes from "
                "the calibration data; `dlc run MODEL --first-nan` says where it comes from"
            )
        self.least, self.largest = min(self.least, least), max(self.largest, largest)
        most = max(-least, largest)
        while most >= _HALF * 2.0**self.exponent:
            self._double()
        places = np.floor(values.ravel() * np.float32(2.0**-self.exponent)).astype(np.int32)
        self.counts += np.bincount(places + _HALF, minlength=BINS)

    def _double(self) -> None:
        pairs = self.counts.reshape(-1, 2).sum(1)
        self.counts = np.zeros(BINS, np.int64)
        self.counts[_HALF // 2 : _HALF // 2 + _HALF] = pairs
        self.exponent += 1

    @property
    def centres(self) -> NDArray[np.float64]:
        """The value that each bin stands for; that of zero stands for it."""
        centres: NDArray[np.float64] = (np.arange(BINS, dtype=np.float64) - _HALF + 0.5) * 2.0**self.exponent
        centres[_HALF] = 0.0
        return centres

    def occupied(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The values of bins between the first and the last that has any, and the share of each."""
        found = np.flatnonzero(self.counts)
        if not found.size:
            return np.zeros(1), np.ones(1)
        part = slice(found[0], found[-1] + 1)
        return self.centres[part], self.counts[part] / self.counts.sum()

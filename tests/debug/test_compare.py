"""Results are compared relative to the largest magnitude, NaN and infinities by position."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from dlc.instrument.compare import deviation, largest_deviation, tolerance_of


def test_deviation_of_special_values() -> None:
    a = np.array([1, np.nan, np.inf], np.float32)
    assert deviation(a, a) == 0
    assert deviation(a, np.array([1, 0, np.inf], np.float32)) == np.inf
    assert deviation(a, a[:2]) == np.inf
    assert deviation(np.array([2, 4]), np.array([2, 5])) == pytest.approx(0.2)
    assert deviation(np.zeros(0), np.zeros(0)) == 0


def test_tolerance_is_that_of_the_least_precise_dtype() -> None:
    exact, fine, coarse = (np.zeros(1, t) for t in (np.int64, np.float32, ml_dtypes.bfloat16))
    assert tolerance_of([exact]) == 0
    assert tolerance_of([exact, fine]) < tolerance_of([fine, coarse])


def test_largest_deviation() -> None:
    a = np.ones(2)
    assert largest_deviation([a, a], [a, 2 * a]) == (1, 0.5)
    assert largest_deviation([], []) == (0, 0.0)

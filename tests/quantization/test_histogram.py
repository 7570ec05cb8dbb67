"""Histograms do not depend on the order of the values."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.errors import DlcError
from dlc.quantization.histogram import Histogram

draw = np.random.default_rng(5)


def test_bins_grow_with_the_values() -> None:
    parts = [draw.standard_normal(1000).astype(np.float32) * scale for scale in (1e-3, 1, 300, 0.1)]
    forwards, backwards = Histogram(), Histogram()
    for part in parts:
        forwards.add(part, "x")
    for part in parts[::-1]:
        backwards.add(part, "x")
    every = np.concatenate(parts)
    assert (forwards.min_value, forwards.max_value) == (every.min(), every.max())
    assert forwards.counts.sum() == every.size
    assert np.array_equal(forwards.counts, backwards.counts)
    width = 2.0**forwards.exponent
    values, shares = forwards.occupied()
    assert len(values) > 1000 and abs((values * shares).sum() - every.mean()) < width


@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (np.inf, "an infinity")])
def test_non_finite_values_are_errors(value: float, kind: str) -> None:
    with pytest.raises(DlcError, match=f"layer: the float model computes {kind}"):
        Histogram().add(np.array([1, value], np.float32), "layer")

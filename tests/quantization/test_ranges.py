"""Scales and zero points of observed values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.errors import DlcError
from dlc.quantization.histogram import Histogram
from dlc.quantization.ranges import METHODS, QuantizationParameters, choose_parameters
from dlc.quantization.settings import QuantizationSettings

draw = np.random.default_rng(6)
# Values with outliers.
TAILED = np.concatenate([draw.standard_normal(100_000), [60.0, -20.0]]).astype(np.float32)


def chosen(values: NDArray[np.float32], settings: QuantizationSettings) -> QuantizationParameters:
    histogram = Histogram()
    histogram.add(values, "x")
    return choose_parameters(histogram, settings)


def through(values: NDArray[np.float32], p: QuantizationParameters) -> NDArray[np.float64]:
    low = np.iinfo(p.dtype).min
    return (np.clip(np.rint(values / p.scale) + p.zero_point, low, low + 255) - p.zero_point) * np.float64(p.scale)


def test_all_values() -> None:
    values = np.array([-1, 0, 3], np.float32)
    assert chosen(values, QuantizationSettings(method="minmax")) == QuantizationParameters(
        np.float32(4 / 255), 64, np.dtype(np.uint8)
    )
    assert chosen(values, QuantizationSettings(method="minmax", activations="s8")) == QuantizationParameters(
        np.float32(4 / 255), -64, np.dtype(np.int8)
    )
    assert chosen(values, QuantizationSettings(method="minmax", symmetric=True)) == QuantizationParameters(
        np.float32(3 / 127), 128, np.dtype(np.uint8)
    )
    signed = QuantizationSettings(method="minmax", symmetric=True, activations="s8")
    assert chosen(values, signed) == QuantizationParameters(np.float32(3 / 127), 0, np.dtype(np.int8))


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("symmetric", [False, True])
def test_zero_is_exact(method: str, symmetric: bool) -> None:
    settings = QuantizationSettings(method=method, symmetric=symmetric)
    for values in (np.zeros(4, np.float32), np.array([2, 3], np.float32), np.array([-3, -2], np.float32)):
        p = chosen(values, settings)
        assert through(np.zeros(1, np.float32), p) == 0
        assert np.abs(through(values, p) - values).max() <= 3 / 127


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_outliers_are_clipped(method: str) -> None:
    every, some = (chosen(TAILED, QuantizationSettings(method=m)) for m in ("minmax", method))
    inner = TAILED[np.abs(TAILED) < 3]
    errors = [float(((through(inner, p) - inner) ** 2).mean()) for p in (every, some)]
    assert errors[1] < errors[0] / 4


def test_mse_is_minimal() -> None:
    errors = {
        m: float(((through(TAILED, chosen(TAILED, QuantizationSettings(method=m))) - TAILED) ** 2).mean()) for m in METHODS
    }
    assert min(errors, key=lambda m: errors[m]) == "mse"


def test_percentile_covers_its_share() -> None:
    p = chosen(TAILED, QuantizationSettings(method="percentile", percentile=99))
    low, high = (np.array([0, 255]) - p.zero_point) * p.scale
    inside = (low <= TAILED) & (high >= TAILED)
    assert 0.98 < inside.mean() < 0.995


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "best"}, "method: expected one of minmax"),
        ({"activations": "s4"}, "activations: expected one of u8, s8, got 's4'"),
        ({"rounding": "up"}, "rounding: expected one of data, nearest, got 'up'"),
        ({"percentile": 40}, "percentile: expected"),
        ({"max_error": 0}, "max_error: expected"),
    ],
)
def test_invalid_settings(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(DlcError, match=message):
        QuantizationSettings(**wrong)  # type: ignore[arg-type]

"""Scales and zero points, by what they make of the values that were seen."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.errors import DlcError
from dlc.quantization.histogram import Histogram
from dlc.quantization.ranges import Parameters, parameters_of
from dlc.quantization.settings import METHODS, Method, Settings

draw = np.random.default_rng(6)
# Some values far from all the others.
TAILED = np.concatenate([draw.standard_normal(100_000), [60.0, -20.0]]).astype(np.float32)


def chosen(values: NDArray[np.float32], settings: Settings) -> Parameters:
    histogram = Histogram()
    histogram.add(values, "x")
    return parameters_of(histogram, settings)


def through(values: NDArray[np.float32], p: Parameters) -> NDArray[np.float64]:
    low = np.iinfo(p.dtype).min
    return (np.clip(np.rint(values / p.scale) + p.zero_point, low, low + 255) - p.zero_point) * np.float64(p.scale)


def test_all_values() -> None:
    values = np.array([-1, 0, 3], np.float32)
    assert chosen(values, Settings(method="minmax")) == Parameters(np.float32(4 / 255), 64, np.dtype(np.uint8))
    assert chosen(values, Settings(method="minmax", activations="s8")) == Parameters(
        np.float32(4 / 255), -64, np.dtype(np.int8)
    )
    assert chosen(values, Settings(method="minmax", symmetric=True)) == Parameters(np.float32(3 / 127), 128, np.dtype(np.uint8))
    signed = Settings(method="minmax", symmetric=True, activations="s8")
    assert chosen(values, signed) == Parameters(np.float32(3 / 127), 0, np.dtype(np.int8))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("symmetric", [False, True])
def test_zero_stays_zero(method: Method, symmetric: bool) -> None:
    settings = Settings(method=method, symmetric=symmetric)
    for values in (np.zeros(4, np.float32), np.array([2, 3], np.float32), np.array([-3, -2], np.float32)):
        p = chosen(values, settings)
        assert through(np.zeros(1, np.float32), p) == 0
        assert np.abs(through(values, p) - values).max() <= 3 / 127


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_rare_values_are_cut_off(method: Method) -> None:
    every, some = (chosen(TAILED, Settings(method=m)) for m in ("minmax", method))
    inner = TAILED[np.abs(TAILED) < 3]
    errors = [float(((through(inner, p) - inner) ** 2).mean()) for p in (every, some)]
    assert errors[1] < errors[0] / 4


def test_the_mean_square_is_least() -> None:
    errors = {m: float(((through(TAILED, chosen(TAILED, Settings(method=m))) - TAILED) ** 2).mean()) for m in METHODS}
    assert min(errors, key=lambda m: errors[m]) == "mse"


def test_a_percentile_leaves_its_share() -> None:
    p = chosen(TAILED, Settings(method="percentile", percentile=99))
    low, high = (np.array([0, 255]) - p.zero_point) * p.scale
    inside = (low <= TAILED) & (high >= TAILED)
    assert 0.98 < inside.mean() < 0.995


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "best"}, "no method 'best'; there are minmax"),
        ({"activations": "s4"}, "no type 's4'"),
        ({"rounding": "up"}, "no rounding 'up'"),
        ({"percentile": 40}, "percentile: expected"),
        ({"bound": 0}, "bound: expected"),
    ],
)
def test_settings_that_are_none(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(DlcError, match=message):
        Settings(**wrong)  # type: ignore[arg-type]

"""dlc.random returns JAX's values: traced, for each target, and on plain arrays."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
from tests.random.recorded_calls import CALLS, CALLS_64, RECORDED, called
from tests.targets import TARGETS

EXPECTED = {
    call: np.array(values, getattr(ml_dtypes, dtype, dtype))
    for call, (dtype, values) in json.loads(RECORDED.read_text()).items()
}
# Tolerance of floats in units in the last place, of 1 for values below 1: JAX rounds at other points.
UNITS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 20}


def difference(call: str, got: Any) -> str | None:
    expected, got = EXPECTED[call], np.asarray(got)
    if got.shape != expected.shape or (got.dtype != expected.dtype and got.dtype != np.int64):
        return f"{call}: {got.dtype}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if expected.dtype.name not in UNITS:
        return None if np.array_equal(got, expected) else f"{call}: {got}, expected {expected}"
    spacing = np.spacing(np.maximum(np.abs(expected), 1)).astype(np.float64)
    units = np.abs(got.astype(np.float64) - expected.astype(np.float64)) / spacing
    limit = UNITS[expected.dtype.name]
    return None if units.max(initial=0) <= limit else f"{call}: {units.max()} units in the last place"


def test_all_are_recorded() -> None:
    assert [*EXPECTED] == [*CALLS, *CALLS_64]


def test_empty_shape() -> None:
    assert dlc.random.normal(dlc.random.key(0), (2, 0, 3)).shape == (2, 0, 3)


def test_on_plain_arrays() -> None:
    key = dlc.random.key(42)
    assert not (wrong := [d for call in EXPECTED if (d := difference(call, called(call, dlc.random, key)))]), "\n".join(wrong)


@pytest.mark.parametrize("target", TARGETS)
def test_traced(target: str) -> None:
    # Each call gets its own copy of the key.
    calls = [*EXPECTED] if target == "reference" else [*EXPECTED][::3]
    keys = [dlc.random.key(42) for _ in calls]
    draw = dlc.jit(target=target)(lambda keys: [called(c, dlc.random, k) for c, k in zip(calls, keys, strict=True)])
    results = draw(keys)
    wrong = [d for call, got in zip(calls, results, strict=True) if (d := difference(call, got))]
    assert not wrong, "\n".join(wrong)

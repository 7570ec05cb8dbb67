"""Frequencies of rotary positions against those that Transformers computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc.errors import ModelError
from dlc.language_models.checkpoints.checkpoint import ModelConfig
from dlc.language_models.rotary_frequencies import max_positions, rotary_frequencies

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {"type": "longrope", "original_max_position_embeddings": 64, "short_factor": [1.0, 1.5, 2.0, 3.0]}
SCALES = {"beta_fast": 8.0, "beta_slow": 2.0, "truncate": False, "mscale": 0.7, "mscale_all_dim": 0.5}


def config_with(scaling: Any) -> ModelConfig:
    return ModelConfig({"rope_theta": 100.0, "max_position_embeddings": 256, "rope_scaling": scaling}, "config.json")


@pytest.mark.parametrize(
    "scaling, per_position, magnitude",
    [
        (YARN, [1.0, 0.237171, 0.05, 0.007906], 1.138629),
        (YARN | SCALES | {"factor": 8.0}, [1.0, 0.134649, 0.0125, 0.003953], 1.037672),
        (LONGROPE, [1.0, 0.210818, 0.05, 0.010541], 1.154701),
        ({"rope_type": "dynamic", "factor": 2.0}, [1.0, 0.316228, 0.1, 0.031623], 1),
    ],
)
def test_scalings(scaling: Any, per_position: list[float], magnitude: float) -> None:
    frequencies = rotary_frequencies(config_with(scaling), 8)
    np.testing.assert_allclose(frequencies.per_position, per_position, rtol=1e-4)
    np.testing.assert_allclose(frequencies.magnitude, magnitude, rtol=1e-6)


def test_short_factors_limit_the_context() -> None:
    assert [max_positions(config_with(scaling)) for scaling in (None, YARN, LONGROPE)] == [256, 256, 64]


@pytest.mark.parametrize(
    "scaling, message",
    [
        ([1], "rope_scaling = .1.; expected an object"),
        (YARN | {"beta_fast": -1}, "beta_fast = -1"),
        (YARN | {"factor": True}, "factor = True"),
        (YARN | {"factor": 10**400}, "factor = 1000"),
        (LONGROPE | {"short_factor": [1.0, "x"]}, "short_factor = .*expected 4 positive numbers"),
        (LONGROPE | {"short_factor": [1.0] * 3}, "expected 4 positive numbers"),
        (LONGROPE | {"original_max_position_embeddings": "many"}, "original_max_position_embeddings = 'many'"),
    ],
)
def test_malformed_scalings(scaling: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        rotary_frequencies(config_with(scaling), 8)

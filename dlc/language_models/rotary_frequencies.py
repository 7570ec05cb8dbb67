"""Frequencies of rotary position embeddings, with the scalings that extend the context."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError, UnsupportedError
from dlc.language_models.checkpoints.checkpoint import ModelConfig


def rotary_frequencies(config: ModelConfig, head_size: int, theta: float | None = None) -> NDArray[np.float64]:
    """Return the angle per position of each pair of features, [head_size / 2], scaled as `rope_scaling` requests.

    `theta` replaces the option rope_theta, without scaling. Raises UnsupportedError for an unknown scaling.
    """
    if head_size % 2:
        raise ModelError(f"{config.source}: heads of size {head_size}; rotary embeddings need an even size")
    base = config.number("rope_theta", 10_000.0) if theta is None else theta
    frequencies = base ** -(np.arange(0, head_size, 2) / head_size)
    scaling = config.get("rope_scaling") if theta is None else None
    if scaling is None:
        return frequencies
    if not isinstance(scaling, dict):
        raise ModelError(f"{config.source}: option rope_scaling = {scaling!r:.60}; expected an object")
    scaling = cast("dict[str, Any]", scaling)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    match kind:
        case "default":
            return frequencies
        case "linear":
            return frequencies / _parameter(config, scaling, "factor")
        case "llama3":
            return _llama3(config, scaling, frequencies)
        case "factors":
            factors = np.asarray(scaling["factors"], np.float64)
            if factors.shape != frequencies.shape or not (factors > 0).all():
                raise ModelError(f"{config.source}: {factors.size} frequency factors for heads of size {head_size}")
            return frequencies / factors
        case _:
            raise UnsupportedError(
                f"{config.source}: rope_scaling of type {kind!r} is not supported; expected default, linear or llama3"
            )


def _llama3(config: ModelConfig, scaling: Mapping[str, Any], frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide low frequencies by `factor`, keep high ones, and interpolate between them (Llama 3.1)."""
    factor, low, high, context = (
        _parameter(config, scaling, name)
        for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    rotations = context * frequencies / (2 * math.pi)
    blend = np.clip((rotations - low) / (high - low), 0, 1)
    return frequencies * ((1 - blend) / factor + blend)


def _parameter(config: ModelConfig, scaling: Mapping[str, Any], name: str) -> float:
    value = scaling.get(name)
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ModelError(f"{config.source}: rope_scaling: {name} = {value!r:.40}; expected a positive number")
    return float(value)

"""Frequencies of rotary position embeddings, with the scalings that extend the context."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError, UnsupportedError
from dlc.language_models.checkpoints.checkpoint import ModelConfig, is_finite_number

_KINDS = ("default", "dynamic", "linear", "llama3", "longrope", "yarn")


@dataclass(frozen=True, eq=False)
class RotaryFrequencies:
    """The rotation of queries and keys.

    Attributes:
        per_position: The angle per position of each pair of features; further features are not rotated.
        magnitude: The factor of the rotated features.
    """

    per_position: NDArray[np.float64]
    magnitude: float = 1.0


def rotary_frequencies(
    config: ModelConfig, head_size: int, theta: float | None = None, rotated: float = 1.0
) -> RotaryFrequencies:
    """Return the frequencies for heads of a size, scaled as `rope_scaling` requests.

    `theta` replaces the option rope_theta, without scaling; `rotated` is the fraction of features that are rotated. Raises
    UnsupportedError for an unknown scaling.
    """
    size = int(head_size * rotated)
    if size % 2 or not 0 < size <= head_size:
        raise ModelError(f"{config.source}: {size} rotated features of {head_size}; expected a positive even number")
    base = config.number("rope_theta", 10_000.0) if theta is None else theta
    if base <= 0:
        raise ModelError(f"{config.source}: option rope_theta = {base!r}; expected a positive number")
    frequencies = base ** -(np.arange(0, size, 2) / size)
    scaling = _scaling(config) if theta is None else dict[str, Any]()
    match kind := _kind(scaling):
        # `dynamic` scales the base for texts longer than `max_positions` only.
        case "default" | "dynamic":
            return RotaryFrequencies(frequencies)
        case "linear":
            return RotaryFrequencies(frequencies / _parameter(config, scaling, "factor"))
        case "llama3":
            return RotaryFrequencies(_llama3(config, scaling, frequencies))
        case "yarn":
            return _yarn(config, scaling, frequencies, base)
        case "longrope":
            return _longrope(config, scaling, frequencies)
        case "factors":
            return RotaryFrequencies(frequencies / _factors(config, scaling, "factors", frequencies))
        case _:
            raise UnsupportedError(
                f"{config.source}: rope_scaling of type {kind!r} is not supported; expected {', '.join(_KINDS)}"
            )


def max_positions(config: ModelConfig) -> int:
    """Return the maximum number of tokens of a text; for longrope the original context, for which its short factors are."""
    scaling, positions = _scaling(config), config.size("max_position_embeddings", 2048)
    return min(positions, int(_original_positions(config, scaling))) if _kind(scaling) == "longrope" else positions


def _scaling(config: ModelConfig) -> Mapping[str, Any]:
    scaling = config.get("rope_scaling")
    if scaling is not None and not isinstance(scaling, dict):
        raise ModelError(f"{config.source}: option rope_scaling = {scaling!r:.60}; expected an object")
    return cast("dict[str, Any]", scaling or {})


def _kind(scaling: Mapping[str, Any]) -> Any:
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    return "longrope" if kind == "su" else kind


def _llama3(config: ModelConfig, scaling: Mapping[str, Any], frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide low frequencies by `factor`, keep high ones, and interpolate between them (Llama 3.1)."""
    factor, low, high, context = (
        _parameter(config, scaling, name)
        for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    if low >= high:
        raise ModelError(f"{config.source}: rope_scaling: low_freq_factor = {low} is not less than high_freq_factor = {high}")
    rotations = context * frequencies / (2 * math.pi)
    blend = np.clip((rotations - low) / (high - low), 0, 1)
    return frequencies * ((1 - blend) / factor + blend)


def _yarn(config: ModelConfig, scaling: Mapping[str, Any], frequencies: NDArray[np.float64], base: float) -> RotaryFrequencies:
    """Divide frequencies with few rotations in the original context by `factor` (Peng et al., YaRN)."""
    context, num_pairs = _original_positions(config, scaling), len(frequencies)
    factor = _parameter(config, scaling, "factor", config.size("max_position_embeddings", 2048) / context)

    def pair_with(rotations: float) -> float:
        """Return the pair of features that rotates this often in the original context."""
        return num_pairs * math.log(context / (rotations * 2 * math.pi)) / math.log(base)

    first = pair_with(_parameter(config, scaling, "beta_fast", 32))
    last = pair_with(_parameter(config, scaling, "beta_slow", 1))
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * num_pairs - 1)
    blend = np.clip((np.arange(num_pairs) - first) / (last - first or 1e-3), 0, 1)

    def magnitude(name: str) -> float:
        return 0.1 * _parameter(config, scaling, name, 1) * math.log(max(factor, 1)) + 1

    has_scales = scaling.get("mscale") and scaling.get("mscale_all_dim")
    default = magnitude("mscale") / magnitude("mscale_all_dim") if has_scales else 0.1 * math.log(max(factor, 1)) + 1
    scaled = frequencies * (blend / factor + 1 - blend)
    return RotaryFrequencies(scaled, _parameter(config, scaling, "attention_factor", default))


def _longrope(config: ModelConfig, scaling: Mapping[str, Any], frequencies: NDArray[np.float64]) -> RotaryFrequencies:
    """Divide each frequency by its factor for texts up to the original context (Ding et al., LongRoPE)."""
    context = _original_positions(config, scaling)
    factor = _parameter(config, scaling, "factor", config.size("max_position_embeddings", 2048) / context)
    default = math.sqrt(1 + math.log(max(factor, 1)) / math.log(max(context, 2)))
    scaled = frequencies / _factors(config, scaling, "short_factor", frequencies)
    return RotaryFrequencies(scaled, _parameter(config, scaling, "attention_factor", default))


def _original_positions(config: ModelConfig, scaling: Mapping[str, Any]) -> float:
    """Return the number of positions before the extension."""
    default = config.size("original_max_position_embeddings", config.size("max_position_embeddings", 2048))
    return _parameter(config, scaling, "original_max_position_embeddings", default)


def _factors(
    config: ModelConfig, scaling: Mapping[str, Any], name: str, frequencies: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return a positive factor for each frequency."""
    try:
        factors = np.asarray(scaling.get(name), np.float64)
    except (TypeError, ValueError):
        factors = np.zeros(0)
    if factors.shape != frequencies.shape or not ((factors > 0) & np.isfinite(factors)).all():
        raise ModelError(
            f"{config.source}: rope_scaling: {name} = {scaling.get(name)!r:.60}; expected {len(frequencies)} positive numbers"
        )
    return factors


def _parameter(config: ModelConfig, scaling: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = default if scaling.get(name) is None else scaling[name]
    if value is None or not is_finite_number(value) or value <= 0:
        raise ModelError(f"{config.source}: rope_scaling: {name} = {value!r:.40}; expected a positive number")
    return float(value)

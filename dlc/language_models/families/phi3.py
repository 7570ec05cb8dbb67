"""Phi-3: Llama with one projection for queries, keys and values, and one for the gate and up projections of the MLP."""

from __future__ import annotations

from collections.abc import Mapping

from dlc.language_models.checkpoints.checkpoint import ModelConfig, ModelWeights, split_weights
from dlc.language_models.decoder import Decoder, DecoderSizes
from dlc.language_models.families.llama import llama


def phi3(config: ModelConfig, weights: ModelWeights) -> Decoder:
    """Build a decoder of this family."""
    rotated = config.optional_number("partial_rotary_factor")
    sizes, inner = DecoderSizes.of(config), config.size("intermediate_size")
    query, kv = sizes.heads * sizes.head, sizes.kv_heads * sizes.head
    parts: dict[str, Mapping[str, int]] = {}
    for index in range(sizes.layers):
        attention, mlp = (f"model.layers.{index}.{part}" for part in ("self_attn", "mlp"))
        heads = (("q", query), ("k", kv), ("v", kv))
        parts[f"{attention}.qkv_proj.weight"] = {f"{attention}.{k}_proj.weight": rows for k, rows in heads}
        parts[f"{mlp}.gate_up_proj.weight"] = {f"{mlp}.gate_proj.weight": inner, f"{mlp}.up_proj.weight": inner}
    return llama(config, split_weights(weights, parts, sizes.hidden), 1.0 if rotated is None else rotated)

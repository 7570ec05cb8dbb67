"""Phi-3: Llama with one projection for queries, keys and values, and one for the gate and up projections of the MLP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dlc.errors import ModelError
from dlc.language_models.checkpoints.checkpoint import ModelConfig, ModelWeights
from dlc.language_models.decoder import Decoder, DecoderSizes
from dlc.language_models.families.llama import llama
from dlc.language_models.quantized_matrix import QuantizedMatrix, Weight


def phi3(config: ModelConfig, weights: ModelWeights) -> Decoder:
    """Build a decoder of this family."""
    config.choice("partial_rotary_factor", (1, None), 1)
    sizes, inner = DecoderSizes.of(config), config.size("intermediate_size")
    query, kv = sizes.heads * sizes.head, sizes.kv_heads * sizes.head
    shapes = dict(weights.shapes)
    sources: dict[str, Callable[[], Weight]] = {}

    def split(name: str, parts: dict[str, int]) -> None:
        """Split a weight into blocks of consecutive rows."""
        shape = shapes.pop(name, None)
        if shape is None or shape != (sum(parts.values()), sizes.hidden):
            raise ModelError(f"{weights.source}: tensor {name!r} has shape {shape}; expected {sum(parts.values())} rows")
        start = 0
        for part, rows in parts.items():
            shapes[part] = (rows, sizes.hidden)
            sources[part] = lambda selected=slice(start, start + rows): _rows(weights.weight(name, *shape), selected)
            start += rows

    for index in range(sizes.layers):
        attention, mlp = (f"model.layers.{index}.{part}" for part in ("self_attn", "mlp"))
        heads = {f"{attention}.{k}_proj.weight": rows for k, rows in (("q", query), ("k", kv), ("v", kv))}
        split(f"{attention}.qkv_proj.weight", heads)
        split(f"{mlp}.gate_up_proj.weight", {f"{mlp}.gate_proj.weight": inner, f"{mlp}.up_proj.weight": inner})

    def read(name: str) -> Weight:
        return sources[name]() if name in sources else weights.read(name)

    parts = replace(weights, shapes=shapes, read=read)
    decoder = llama(config, parts)
    parts.require_all_read()
    return decoder


def _rows(weight: Weight, selected: slice) -> Weight:
    return weight.rows(selected) if isinstance(weight, QuantizedMatrix) else weight[selected]

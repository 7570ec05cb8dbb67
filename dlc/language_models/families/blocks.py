"""Parts that several families share: attention with rotary positions, gated MLPs, and the token embedding with the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

import dlc.numpy as dnp
from dlc import nn
from dlc.language_models.checkpoints.checkpoint import ModelConfig, ModelWeights
from dlc.language_models.decoder import DecoderSizes
from dlc.language_models.layers import apply_rotary, embed, linear
from dlc.language_models.quantized_matrix import Weight
from dlc.language_models.rotary_frequencies import RotaryFrequencies

# Activations by their names in configurations.
ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "silu": nn.silu,
    "gelu": nn.gelu,
    "gelu_new": lambda x: nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: nn.gelu(x, approximate=True),
    "relu": nn.relu,
}


@dataclass(frozen=True)
class Projection:
    """A weight [N, K] with an optional bias [N]."""

    weight: Weight
    bias: NDArray[Any] | None = None

    @staticmethod
    def read(weights: ModelWeights, name: str, outputs: int, inputs: int) -> Projection:
        """Read `name.weight` and, if there is one, `name.bias`."""
        return Projection(weights.weight(f"{name}.weight", outputs, inputs), weights.optional(f"{name}.bias", outputs))

    def __call__(self, x: Any) -> Any:
        return linear(x, self.weight, self.bias)


class AttentionContext(Protocol):
    """The keys and values that queries attend to: a KV cache, or the tokens of the same text."""

    positions: Any
    """The position of each token in its text, [T]."""

    def attend(
        self,
        layer: int,
        query: Any,
        key: Any,
        value: Any,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> Any:
        """Return attention of query [T, heads, D] to keys and values [T, kv heads, D] of a layer, as [T, heads · D]."""
        ...


@dataclass(frozen=True)
class Attention:
    """Self-attention of a layer.

    Attributes:
        query, key, value, output: The projections.
        frequencies: Those of rotary positions; None without them.
        normalize_query, normalize_key: Applied to [T, heads, D] before the rotation.
        limit: Clips projected queries, keys and values to -limit … limit.
    """

    sizes: DecoderSizes
    query: Projection
    key: Projection
    value: Projection
    output: Projection
    frequencies: RotaryFrequencies | None = None
    scale: float | None = None
    window: int | None = None
    softcap: float | None = None
    normalize_query: Callable[[Any], Any] = lambda x: x
    normalize_key: Callable[[Any], Any] = lambda x: x
    limit: float | None = None

    @staticmethod
    def read(weights: ModelWeights, prefix: str, sizes: DecoderSizes, **options: Any) -> Attention:
        """Read the projections `prefix.q_proj`, … `prefix.o_proj`."""
        query_size, kv_size, hidden = sizes.heads * sizes.head, sizes.kv_heads * sizes.head, sizes.hidden

        def projection(name: str, outputs: int, inputs: int) -> Projection:
            return Projection.read(weights, f"{prefix}.{name}_proj", outputs, inputs)

        query, output = projection("q", query_size, hidden), projection("o", hidden, query_size)
        return Attention(sizes, query, projection("k", kv_size, hidden), projection("v", kv_size, hidden), output, **options)

    def __call__(self, x: Any, context: AttentionContext, layer: int) -> Any:
        projected = [self._heads(p(x), n) for p, n in zip((self.query, self.key, self.value), self._counts, strict=True)]
        query, key, value = projected
        query, key = self.normalize_query(query), self.normalize_key(key)
        if self.frequencies is not None:
            angles = context.positions.astype(np.float32)[:, None] * self.frequencies.per_position.astype(np.float32)
            query, key = (apply_rotary(x, angles, self.frequencies.magnitude) for x in (query, key))
        mixed = context.attend(layer, query, key, value, scale=self.scale, window=self.window, softcap=self.softcap)
        return self.output(mixed)

    @property
    def _counts(self) -> tuple[int, int, int]:
        return self.sizes.heads, self.sizes.kv_heads, self.sizes.kv_heads

    def _heads(self, x: Any, count: int) -> Any:
        if self.limit is not None:
            x = dnp.clip(x, -self.limit, self.limit)
        return dnp.reshape(x, (x.shape[0], count, self.sizes.head))


@dataclass(frozen=True)
class GatedMlp:
    """down · (activation(gate · x) ∘ (up · x))."""

    gate: Projection
    up: Projection
    down: Projection
    activation: Callable[[Any], Any]

    @staticmethod
    def read(weights: ModelWeights, prefix: str, hidden: int, inner: int, activation: Callable[[Any], Any]) -> GatedMlp:
        """Read `prefix.gate_proj`, `prefix.up_proj` and `prefix.down_proj`."""
        gate, up = (Projection.read(weights, f"{prefix}.{name}_proj", inner, hidden) for name in ("gate", "up"))
        return GatedMlp(gate, up, Projection.read(weights, f"{prefix}.down_proj", hidden, inner), activation)

    def __call__(self, x: Any) -> Any:
        return self.down(self.activation(self.gate(x)) * self.up(x))


@dataclass(frozen=True)
class LayerNorm:
    """A layer norm with a scale and a bias."""

    scale: NDArray[Any]
    bias: NDArray[Any]
    epsilon: float

    @staticmethod
    def read(weights: ModelWeights, name: str, size: int, epsilon: float) -> LayerNorm:
        """Read `name.weight` and `name.bias`."""
        return LayerNorm(weights.vector(f"{name}.weight", size), weights.vector(f"{name}.bias", size), epsilon)

    def __call__(self, x: Any) -> Any:
        return nn.layer_norm(x, self.scale, self.bias, epsilon=self.epsilon)


def read_embedding(
    config: ModelConfig, weights: ModelWeights, sizes: DecoderSizes, *, is_tied: bool
) -> tuple[Callable[[Any], Any], Projection]:
    """Return the embedding of tokens and the head, which share a weight if the option tie_word_embeddings is true.

    `is_tied` is the default of that option.
    """
    table = weights.weight("model.embed_tokens.weight", sizes.vocabulary, sizes.hidden)
    if config.flag("tie_word_embeddings", is_tied):
        # Some files store the shared weight twice.
        if "lm_head.weight" in weights:
            weights.weight("lm_head.weight", sizes.vocabulary, sizes.hidden)
        return lambda tokens: embed(tokens, table), Projection(table)
    return lambda tokens: embed(tokens, table), Projection.read(weights, "lm_head", sizes.vocabulary, sizes.hidden)


def sliding_layers(config: ModelConfig, num_layers: int, pattern: int | None) -> list[bool]:
    """Return for each layer whether it attends to a window of tokens only.

    The option `layer_types` lists them; otherwise all layers but each `pattern`-th do. Without a pattern all do.
    """
    types = config.get("layer_types")
    pattern_size = config.optional_size("sliding_window_pattern") or config.optional_size("_sliding_window_pattern") or pattern
    if types is None:
        return [pattern_size is None or bool((i + 1) % pattern_size) for i in range(num_layers)]
    kinds = cast("list[Any]", types) if isinstance(types, list) else []
    if len(kinds) != num_layers or not all(kind in ("full_attention", "sliding_attention") for kind in kinds):
        raise config.error(f"option layer_types = {types!r:.80}; expected full_attention or sliding_attention for each layer")
    return [kind == "sliding_attention" for kind in kinds]

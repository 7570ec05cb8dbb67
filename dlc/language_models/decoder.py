"""Decoders: the interface between the families of models and the programs that generate text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dlc.language_models.checkpoints.checkpoint import ModelConfig

if TYPE_CHECKING:
    from dlc.language_models.cached_attention import KvCache

# A layer: (x [T, D], the caches) → x.
Layer: TypeAlias = "Callable[[Any, KvCache], Any]"


@dataclass(frozen=True)
class Decoder:
    """A causal language model as functions on rows of tokens.

    Attributes:
        vocabulary_size: The number of token ids.
        context_length: The maximum number of tokens.
        kv_heads, head_size: The shape of a row of each layer's keys and values.
        embed: (tokens [T], positions [T]) → x [T, D].
        layers: The layers, in order.
        logits: x [T, D] → [T, vocabulary size].
    """

    vocabulary_size: int
    context_length: int
    kv_heads: int
    head_size: int
    embed: Callable[[Any, Any], Any]
    layers: Sequence[Layer]
    logits: Callable[[Any], Any]


# Options are read for each layer before its weights are.
_MAX_LAYERS = 4096


@dataclass(frozen=True)
class DecoderSizes:
    """The sizes that all families have."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    context: int

    @staticmethod
    def of(config: ModelConfig) -> DecoderSizes:
        """Read the sizes. Raises ModelError for missing or contradictory ones."""
        hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
        kv_heads = config.size("num_key_value_heads", heads)
        if heads % kv_heads:
            config_text = f"num_attention_heads = {heads} is not a multiple of num_key_value_heads = {kv_heads}"
            raise config.error(config_text)
        head = config.size("head_dim", max(hidden // heads, 1))
        layers, vocabulary = config.size("num_hidden_layers"), config.size("vocab_size")
        if layers > _MAX_LAYERS:
            raise config.error(f"option num_hidden_layers = {layers}; expected at most {_MAX_LAYERS}")
        return DecoderSizes(hidden, layers, heads, kv_heads, head, vocabulary, config.size("max_position_embeddings", 2048))

"""BERT, RoBERTa, XLM-R, DistilBERT and Nomic BERT: encoders with layer norms after attention and after the MLP.

A layer is x = norm(x + attention(x)), then norm(x + mlp(x)). Nomic BERT has rotary positions and gated MLPs; the others have
learned positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import ragged
from dlc.errors import UnsupportedError
from dlc.language_models.checkpoints.checkpoint import ModelConfig, ModelWeights, split_weights
from dlc.language_models.decoder import DecoderSizes
from dlc.language_models.encoder import Encoder, first_position
from dlc.language_models.families.blocks import ACTIVATIONS, Attention, GatedMlp, LayerNorm, Projection
from dlc.language_models.layers import embed
from dlc.language_models.rotary_frequencies import rotary_frequencies
from dlc.ragged import Ragged

# Parts of checkpoints that embeddings do not use.
_HEADS = ("model.pooler.", "model.cls.", "lm_head.", "model.vocab_")


class _SegmentAttention:
    """Bidirectional attention among the tokens of each text."""

    def __init__(self, tokens: Ragged) -> None:
        self.positions = tokens.positions
        self._lengths = tokens.lengths

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
        if window is not None or softcap is not None:
            raise UnsupportedError("attention windows and softcaps are not supported in encoders")
        batches = (Ragged(x, self._lengths) for x in (query, key, value))
        mixed = ragged.attention(*batches, scale=scale).values
        return dnp.reshape(mixed, (mixed.shape[0], query.shape[1] * query.shape[2]))


def bert(config: ModelConfig, weights: ModelWeights, model_type: str) -> Encoder:
    """Build an encoder of one of these families."""
    sizes, inner = DecoderSizes.of(config), config.size("intermediate_size")
    is_rotary, epsilon = model_type == "nomic_bert", config.number("layer_norm_eps", 1e-12)
    activation = ACTIVATIONS[config.choice("hidden_act", ACTIVATIONS, "silu" if is_rotary else "gelu")]
    config.flag("tie_word_embeddings")  # Encoders have no head.
    config.choice("position_embedding_type", ("absolute",), "absolute")
    for name in ("is_decoder", "add_cross_attention", "sinusoidal_pos_embds"):
        config.choice(name, (False,), False)
    options = {"frequencies": rotary_frequencies(config, sizes.head)} if is_rotary else {}
    weights.ignore(*_HEADS)
    if is_rotary:
        prefixes = [f"model.layers.{i}.self_attn" for i in range(sizes.layers)]
        joint = {f"{p}.qkv_proj.weight": {f"{p}.{k}_proj.weight": sizes.hidden for k in "qkv"} for p in prefixes}
        weights = split_weights(weights, joint, sizes.hidden)
    embed_tokens = _read_embeddings(config, weights, sizes, None if is_rotary else first_position(config, model_type))
    embedding_norm = LayerNorm.read(weights, "model.embed_norm", sizes.hidden, epsilon)

    def read_mlp(prefix: str) -> Callable[[Any], Any]:
        if is_rotary:
            return GatedMlp.read(weights, prefix, sizes.hidden, inner, activation)
        up = Projection.read(weights, f"{prefix}.up_proj", inner, sizes.hidden)
        down = Projection.read(weights, f"{prefix}.down_proj", sizes.hidden, inner)
        return lambda x: down(activation(up(x)))

    def read_layer(index: int) -> Callable[[Any, _SegmentAttention], Any]:
        prefix = f"model.layers.{index}"
        attention = Attention.read(weights, f"{prefix}.self_attn", sizes, **options)
        after_attention = LayerNorm.read(weights, f"{prefix}.post_attention_layernorm", sizes.hidden, epsilon)
        mlp = read_mlp(f"{prefix}.mlp")
        after_mlp = LayerNorm.read(weights, f"{prefix}.post_feedforward_layernorm", sizes.hidden, epsilon)

        def layer(x: Any, context: _SegmentAttention) -> Any:
            x = after_attention(x + attention(x, context, index))
            return after_mlp(x + mlp(x))

        return layer

    layers = [read_layer(index) for index in range(sizes.layers)]

    def encode(tokens: Ragged) -> Ragged:
        context = _SegmentAttention(tokens)
        x = embedding_norm(embed_tokens(tokens.values, context.positions))
        for layer in layers:
            x = layer(x, context)
        return Ragged(x, tokens.lengths)

    return encode


def _read_embeddings(
    config: ModelConfig, weights: ModelWeights, sizes: DecoderSizes, first_position: int | None
) -> Callable[[Any, Any], Any]:
    """Return (tokens, positions) → the sum of the embeddings of the token, its position and the first token type."""
    table = weights.weight("model.embed_tokens.weight", sizes.vocabulary, sizes.hidden)
    name, num_types = "model.token_type_embeddings.weight", config.size("type_vocab_size", 2)
    types = weights.vector(name, num_types, sizes.hidden) if name in weights else np.zeros((1, sizes.hidden), np.float32)
    if first_position is None:
        return lambda tokens, positions: embed(tokens, table) + types[0]
    position_table = weights.vector("model.position_embeddings.weight", sizes.context, sizes.hidden)[first_position:] + types[0]
    return lambda tokens, positions: embed(tokens, table) + dnp.take(position_table, positions, 0, mode="clip")

"""OLMo 1 and 2: norms without parameters before each part, or norms after each part and of queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import nn
from dlc.language_models.cached_attention import KvCache
from dlc.language_models.checkpoints.checkpoint import ModelConfig, ModelWeights
from dlc.language_models.decoder import Decoder, DecoderSizes, Layer
from dlc.language_models.families.blocks import ACTIVATIONS, Attention, GatedMlp, read_embedding
from dlc.language_models.layers import rms_norm
from dlc.language_models.rotary_frequencies import rotary_frequencies

Function = Callable[[Any], Any]


def olmo(config: ModelConfig, weights: ModelWeights, model_type: str) -> Decoder:
    """Build a decoder of this family."""
    sizes, is_first = DecoderSizes.of(config), model_type == "olmo"
    config.flag("attention_bias")  # The presence of bias tensors decides.
    inner, limit = config.size("intermediate_size"), config.optional_number("clip_qkv")
    epsilon = config.number("layer_norm_eps" if is_first else "rms_norm_eps", 1e-5)
    activation = ACTIVATIONS[config.choice("hidden_act", ACTIVATIONS, "silu")]
    options = {"frequencies": rotary_frequencies(config, sizes.head), "limit": limit}
    embed, head = read_embedding(config, weights, sizes, is_tied=False)

    def read_norm(name: str, size: int) -> Function:
        return partial(rms_norm, weight=weights.vector(f"{name}.weight", size), epsilon=epsilon)

    def read_layer(index: int) -> Layer:
        prefix = f"model.layers.{index}"
        mlp = GatedMlp.read(weights, f"{prefix}.mlp", sizes.hidden, inner, activation)
        if is_first:
            attention = Attention.read(weights, f"{prefix}.self_attn", sizes, **options)
            return _layer_with_norms_before(index, attention, mlp, partial(_normalize, epsilon=epsilon))
        norms = {
            f"normalize_{name}": partial(_over_heads, read_norm(f"{prefix}.self_attn.{name[0]}_norm", heads * sizes.head))
            for name, heads in (("query", sizes.heads), ("key", sizes.kv_heads))
        }
        attention = Attention.read(weights, f"{prefix}.self_attn", sizes, **options, **norms)
        after = read_norm(f"{prefix}.post_attention_layernorm", sizes.hidden)
        after_mlp = read_norm(f"{prefix}.post_feedforward_layernorm", sizes.hidden)
        return _layer_with_norms_after(index, attention, mlp, after, after_mlp)

    layers = [read_layer(index) for index in range(sizes.layers)]
    final_norm = partial(_normalize, epsilon=epsilon) if is_first else read_norm("model.norm", sizes.hidden)
    return Decoder(
        sizes.vocabulary,
        sizes.context,
        sizes.kv_heads,
        sizes.head,
        lambda tokens, positions: embed(tokens),
        layers,
        lambda x: head(final_norm(x)),
    )


def _layer_with_norms_before(index: int, attention: Attention, mlp: GatedMlp, norm: Function) -> Layer:
    def layer(x: Any, caches: KvCache) -> Any:
        x = x + attention(norm(x), caches, index)
        return x + mlp(norm(x))

    return layer


def _layer_with_norms_after(index: int, attention: Attention, mlp: GatedMlp, after: Function, after_mlp: Function) -> Layer:
    def layer(x: Any, caches: KvCache) -> Any:
        x = x + after(attention(x, caches, index))
        return x + after_mlp(mlp(x))

    return layer


def _over_heads(norm: Function, x: Any) -> Any:
    """Normalize all heads of a token together; x [T, heads, D]."""
    tokens, heads, size = x.shape
    return dnp.reshape(norm(dnp.reshape(x, (tokens, heads * size))), (tokens, heads, size))


def _normalize(x: Any, epsilon: float) -> Any:
    """Normalize rows without a scale and a bias."""
    size = int(x.shape[-1])
    return nn.layer_norm(x, np.ones(size, np.float32), np.zeros(size, np.float32), epsilon=epsilon)

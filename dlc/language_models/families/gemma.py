"""Gemma 2 and 3: norms before and after each part, a scaled embedding, and layers that attend to a window of tokens only.

Gemma 2 limits the scores of attention and the logits; Gemma 3 normalizes queries and keys, and its layers with a window have
rotary frequencies of their own.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dlc.numpy as dnp
from dlc.language_models.cached_attention import KvCache
from dlc.language_models.checkpoints.checkpoint import ModelConfig, ModelWeights
from dlc.language_models.decoder import Decoder, DecoderSizes, Layer
from dlc.language_models.families.blocks import ACTIVATIONS, Attention, GatedMlp, read_embedding, sliding_layers
from dlc.language_models.layers import rms_norm
from dlc.language_models.rotary_frequencies import rotary_frequencies

_PATTERNS = {"gemma2": 2, "gemma3_text": 6}
_LAYER_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def gemma(config: ModelConfig, weights: ModelWeights, model_type: str) -> Decoder:
    """Build a decoder of this family."""
    sizes, epsilon = DecoderSizes.of(config), config.number("rms_norm_eps", 1e-6)
    config.flag("attention_bias")  # The presence of bias tensors decides.
    config.choice("use_bidirectional_attention", (False, None), False)
    name = "hidden_act" if config.get("hidden_activation") is None else "hidden_activation"
    config.get("hidden_act")
    activation = ACTIVATIONS[config.choice(name, ("gelu_pytorch_tanh", "gelu"), "gelu_pytorch_tanh")]
    if name == "hidden_act":
        # Early files specify gelu for the tanh approximation.
        activation = ACTIVATIONS["gelu_pytorch_tanh"]
    inner, window = config.size("intermediate_size"), config.size("sliding_window", 4096)
    is_sliding = sliding_layers(config, sizes.layers, _PATTERNS[model_type])
    scale = config.number("query_pre_attn_scalar", sizes.head) ** -0.5
    softcap, logit_cap = config.optional_number("attn_logit_softcapping"), config.optional_number("final_logit_softcapping")
    frequencies = rotary_frequencies(config, sizes.head)
    local_theta = config.number("rope_local_base_freq", 10_000.0) if model_type == "gemma3_text" else None
    local = frequencies if local_theta is None else rotary_frequencies(config, sizes.head, local_theta)
    offset = 0 if config.flag("norms_include_one") else 1
    embed, head = read_embedding(config, weights, sizes, is_tied=True)

    def read_norm(name: str, size: int) -> NDArray[Any]:
        return np.float32(offset) + weights.vector(f"{name}.weight", size)

    def read_layer(index: int) -> Layer:
        prefix = f"model.layers.{index}"
        before, after, before_mlp, after_mlp = (read_norm(f"{prefix}.{norm}", sizes.hidden) for norm in _LAYER_NORMS)
        options: dict[str, Any] = {}
        if model_type == "gemma3_text":
            query_norm, key_norm = (read_norm(f"{prefix}.self_attn.{k}_norm", sizes.head) for k in "qk")
            options["normalize_query"] = partial(rms_norm, weight=query_norm, epsilon=epsilon)
            options["normalize_key"] = partial(rms_norm, weight=key_norm, epsilon=epsilon)
        attention = Attention.read(
            weights,
            f"{prefix}.self_attn",
            sizes,
            frequencies=local if is_sliding[index] else frequencies,
            window=window if is_sliding[index] else None,
            scale=scale,
            softcap=softcap,
            **options,
        )
        mlp = GatedMlp.read(weights, f"{prefix}.mlp", sizes.hidden, inner, activation)

        def layer(x: Any, caches: KvCache) -> Any:
            x = x + rms_norm(attention(rms_norm(x, before, epsilon), caches, index), after, epsilon)
            return x + rms_norm(mlp(rms_norm(x, before_mlp, epsilon)), after_mlp, epsilon)

        return layer

    layers = [read_layer(index) for index in range(sizes.layers)]
    final_norm = read_norm("model.norm", sizes.hidden)

    def logits(x: Any) -> Any:
        y = head(rms_norm(x, final_norm, epsilon))
        return y if logit_cap is None else logit_cap * dnp.tanh(y / logit_cap)

    return Decoder(
        sizes.vocabulary,
        sizes.context,
        sizes.kv_heads,
        sizes.head,
        lambda tokens, positions: embed(tokens) * np.float32(math.sqrt(sizes.hidden)),
        layers,
        logits,
    )

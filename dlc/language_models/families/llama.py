"""Llama 2 and 3, Mistral, SmolLM, Qwen 2, 2.5 and 3, Mixtral and Qwen's mixtures of experts.

x + attention(rms_norm(x)), then x + mlp(rms_norm(x)). Qwen 2 has biases of queries, keys and values; Qwen 3 normalizes queries
and keys. Mixtures replace the MLP by experts that are selected for each token (mixture.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlc.language_models.cached_attention import KvCache
from dlc.language_models.checkpoints.checkpoint import ModelConfig, ModelWeights
from dlc.language_models.decoder import Decoder, DecoderSizes, Layer
from dlc.language_models.families.blocks import ACTIVATIONS, Attention, GatedMlp, read_embedding, sliding_layers
from dlc.language_models.families.mixture import read_mixture
from dlc.language_models.layers import rms_norm
from dlc.language_models.rotary_frequencies import rotary_frequencies


def llama(config: ModelConfig, weights: ModelWeights, rotated: float = 1.0) -> Decoder:
    """Build a decoder of one of these families; `rotated` is the fraction of features with rotary positions."""
    sizes, epsilon = DecoderSizes.of(config), config.number("rms_norm_eps", 1e-6)
    for bias in ("attention_bias", "mlp_bias", "qkv_bias"):
        config.flag(bias)  # The presence of bias tensors decides.
    frequencies, windows = rotary_frequencies(config, sizes.head, rotated=rotated), _windows(config, sizes.layers)
    embed, head = read_embedding(config, weights, sizes, is_tied=False)
    final_norm = weights.vector("model.norm.weight", sizes.hidden)

    def read_layer(index: int) -> Layer:
        prefix = f"model.layers.{index}"
        attention_norm = weights.vector(f"{prefix}.input_layernorm.weight", sizes.hidden)
        mlp_norm = weights.vector(f"{prefix}.post_attention_layernorm.weight", sizes.hidden)
        attention = Attention.read(
            weights,
            f"{prefix}.self_attn",
            sizes,
            frequencies=frequencies,
            window=windows[index],
            normalize_query=_head_norm(weights, f"{prefix}.self_attn.q_norm.weight", sizes, epsilon),
            normalize_key=_head_norm(weights, f"{prefix}.self_attn.k_norm.weight", sizes, epsilon),
        )
        mlp = _read_mlp(config, weights, f"{prefix}.mlp", index, sizes)

        def layer(x: Any, caches: KvCache) -> Any:
            x = x + attention(rms_norm(x, attention_norm, epsilon), caches, index)
            return x + mlp(rms_norm(x, mlp_norm, epsilon))

        return layer

    layers = [read_layer(index) for index in range(sizes.layers)]
    return Decoder(
        sizes.vocabulary,
        sizes.context,
        sizes.kv_heads,
        sizes.head,
        lambda tokens, positions: embed(tokens),
        layers,
        lambda x: head(rms_norm(x, final_norm, epsilon)),
    )


def _windows(config: ModelConfig, num_layers: int) -> list[int | None]:
    """Return the window of each layer, None for all tokens."""
    uses_window, first = config.flag("use_sliding_window", True), config.get("max_window_layers")
    window = config.get("sliding_window") if not uses_window else config.optional_size("sliding_window")
    # Qwen's first layers attend to all tokens.
    if first is None or config.get("layer_types") is not None:
        first = 0
    if not isinstance(first, int):
        raise config.error(f"option max_window_layers = {first!r:.40}; expected an integer")
    if not uses_window:
        return [None] * num_layers
    is_sliding = sliding_layers(config, num_layers, None)
    return [window if is_sliding[i] and i >= first else None for i in range(num_layers)]


def _head_norm(weights: ModelWeights, name: str, sizes: DecoderSizes, epsilon: float) -> Callable[[Any], Any]:
    scale = weights.optional(name, sizes.head)
    return (lambda x: x) if scale is None else (lambda x: rms_norm(x, scale, epsilon))


def _read_mlp(config: ModelConfig, weights: ModelWeights, prefix: str, index: int, sizes: DecoderSizes) -> Callable[[Any], Any]:
    activation = ACTIVATIONS[config.choice("hidden_act", ACTIVATIONS, "silu")]
    sparse_step, dense_layers = config.size("decoder_sparse_step", 1), config.sequence("mlp_only_layers")
    inner = config.size("intermediate_size")
    if config.get("num_experts") is None or index in dense_layers or (index + 1) % sparse_step:
        return GatedMlp.read(weights, prefix, sizes.hidden, inner, activation)
    return read_mixture(config, weights, prefix, sizes.hidden, activation)

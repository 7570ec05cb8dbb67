"""GPT-2: learned positions, layer norms with biases, and an MLP of two projections."""

from __future__ import annotations

from typing import Any

import dlc.numpy as dnp
from dlc.language_models.cached_attention import KvCache
from dlc.language_models.checkpoints.checkpoint import ModelConfig, ModelWeights
from dlc.language_models.decoder import Decoder, DecoderSizes, Layer
from dlc.language_models.families.blocks import ACTIVATIONS, LayerNorm, Projection, read_embedding


def gpt2(config: ModelConfig, weights: ModelWeights) -> Decoder:
    """Build a decoder of this family."""
    sizes, epsilon = DecoderSizes.of(config), config.number("layer_norm_eps", 1e-5)
    inner = config.optional_size("intermediate_size") or 4 * sizes.hidden
    activation = ACTIVATIONS[config.choice("hidden_act", ("gelu_new", "gelu", "gelu_pytorch_tanh", "relu"), "gelu_new")]
    scale = sizes.head**-0.5 if config.flag("scale_attn_weights", True) else 1.0
    has_layer_scales = config.flag("scale_attn_by_inverse_layer_idx")
    config.choice("add_cross_attention", (False,), False)
    embed, head = read_embedding(config, weights, sizes, is_tied=True)
    positions_table = weights.vector("model.position_embeddings.weight", sizes.context, sizes.hidden)

    def read_norm(name: str) -> LayerNorm:
        return LayerNorm.read(weights, name, sizes.hidden, epsilon)

    def read_layer(index: int) -> Layer:
        prefix = f"model.layers.{index}"
        attention_norm, mlp_norm = read_norm(f"{prefix}.input_layernorm"), read_norm(f"{prefix}.post_attention_layernorm")
        joint = Projection.read(weights, f"{prefix}.self_attn.qkv_proj", 3 * sizes.hidden, sizes.hidden)
        output = Projection.read(weights, f"{prefix}.self_attn.o_proj", sizes.hidden, sizes.hidden)
        up = Projection.read(weights, f"{prefix}.mlp.up_proj", inner, sizes.hidden)
        down = Projection.read(weights, f"{prefix}.mlp.down_proj", sizes.hidden, inner)

        def layer(x: Any, caches: KvCache) -> Any:
            heads = dnp.reshape(joint(attention_norm(x)), (x.shape[0], 3, sizes.heads, sizes.head))
            layer_scale = scale / (index + 1) if has_layer_scales else scale
            x = x + output(caches.attend(index, heads[:, 0], heads[:, 1], heads[:, 2], scale=layer_scale))
            return x + down(activation(up(mlp_norm(x))))

        return layer

    layers = [read_layer(index) for index in range(sizes.layers)]
    final_norm = read_norm("model.norm")
    return Decoder(
        sizes.vocabulary,
        sizes.context,
        sizes.kv_heads,
        sizes.head,
        lambda tokens, positions: embed(tokens) + dnp.take(positions_table, positions, 0, mode="clip"),
        layers,
        lambda x: head(final_norm(x)),
    )

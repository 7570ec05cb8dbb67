"""Names of options and tensors of Hugging Face's families that differ from those of Llama."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from dlc.errors import ModelError, UnsupportedError

_OPTION_NAMES: Mapping[str, Mapping[str, str]] = {
    "gpt2": {
        "n_embd": "hidden_size",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
        "n_positions": "max_position_embeddings",
        "n_inner": "intermediate_size",
        "activation_function": "hidden_act",
        "layer_norm_epsilon": "layer_norm_eps",
    },
    "distilbert": {
        "dim": "hidden_size",
        "n_heads": "num_attention_heads",
        "n_layers": "num_hidden_layers",
        "hidden_dim": "intermediate_size",
        "activation": "hidden_act",
    },
    **{name: {"num_local_experts": "num_experts"} for name in ("mixtral", "qwen2_moe", "qwen3_moe")},
}
# Patterns of the names of encoders.
_BERT_NAMES = (
    (r"^(bert|roberta|distilbert)\.", ""),
    (r"\.gamma$", ".weight"),
    (r"\.beta$", ".bias"),
    (r"^(embeddings\.LayerNorm|emb_ln)\.", "embed_norm."),
    (r"^embeddings\.word_embeddings\.", "embed_tokens."),
    (r"^embeddings\.", ""),
    (r"^(encoder\.layers?|transformer\.layer)\.", "layers."),
    (r"\.(attention\.output\.LayerNorm|sa_layer_norm|norm1)\.", ".post_attention_layernorm."),
    (r"\.(output\.LayerNorm|output_layer_norm|norm2)\.", ".post_feedforward_layernorm."),
    (r"\.(attention\.output\.dense|attention\.out_lin|attn\.out_proj)\.", ".self_attn.o_proj."),
    (r"\.attention\.(?:self\.)?([qkv])(?:uery|ey|alue|_lin)\.", r".self_attn.\1_proj."),
    (r"\.attn\.Wqkv\.", ".self_attn.qkv_proj."),
    (r"\.(intermediate\.dense|ffn\.lin1|mlp\.fc11)\.", ".mlp.up_proj."),
    (r"\.mlp\.fc12\.", ".mlp.gate_proj."),
    (r"\.(output\.dense|ffn\.lin2|mlp\.fc2)\.", ".mlp.down_proj."),
)
# Patterns of tensor names, in order, and their replacements.
_TENSOR_NAMES: Mapping[str, Sequence[tuple[str, str]]] = {
    "gpt2": (
        (r"^(?=h\.|wte|wpe|ln_f)", "transformer."),
        (r"^transformer\.h\.", "model.layers."),
        (r"^transformer\.wte\.", "model.embed_tokens."),
        (r"^transformer\.wpe\.", "model.position_embeddings."),
        (r"^transformer\.ln_f\.", "model.norm."),
        (r"\.ln_1\.", ".input_layernorm."),
        (r"\.ln_2\.", ".post_attention_layernorm."),
        (r"\.attn\.c_attn\.", ".self_attn.qkv_proj."),
        (r"\.attn\.c_proj\.", ".self_attn.o_proj."),
        (r"\.mlp\.c_fc\.", ".mlp.up_proj."),
        (r"\.mlp\.c_proj\.", ".mlp.down_proj."),
    ),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "nomic_bert"), _BERT_NAMES),
    "mixtral": (
        (r"\.block_sparse_moe\.", ".mlp."),
        (r"\.w1\.weight$", ".gate_proj.weight"),
        (r"\.w2\.weight$", ".down_proj.weight"),
        (r"\.w3\.weight$", ".up_proj.weight"),
    ),
}


def canonical_tensor_name(model_type: str, name: str) -> str:
    """Return the name that Llama gives a tensor with this role."""
    for pattern, replacement in _TENSOR_NAMES.get(model_type, ()):
        name = re.sub(pattern, replacement, name)
    # Models that are saved without their head lack the prefix.
    return name if name.startswith(("model.", "lm_head.")) else f"model.{name}"


def is_transposed(model_type: str, name: str) -> bool:
    """Return whether a tensor with a canonical name is stored as [inputs, outputs]."""
    return model_type == "gpt2" and name.endswith("_proj.weight")


def mixtral_options(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of Qwen's mixtures that a Mixtral does not have."""
    return {"moe_intermediate_size": known.get("intermediate_size"), "norm_topk_prob": True}


def canonical_options(model_type: str, options: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the options under the names of Llama, those of rotary embeddings as rope_theta and rope_scaling.

    Newer files have `rope_parameters`, for some models one set per kind of layer. Raises ModelError if one is not an object.
    """
    names = _OPTION_NAMES.get(model_type, {})
    known = {names.get(name, name): value for name, value in options.items()}
    if model_type == "mixtral":
        known |= mixtral_options(known)
    parameters = known.pop("rope_parameters", None)
    if parameters is None:
        return known
    scaling = _copied_object(parameters, "rope_parameters", source)
    if "full_attention" in scaling:
        local = _copied_object(scaling.get("sliding_attention", {}), "rope_parameters of sliding_attention", source)
        if local.get("rope_type", "default") != "default":
            problem = (
                f"{source}: rope_parameters of sliding_attention have rope_type {local['rope_type']!r}; expected 'default'"
            )
            raise UnsupportedError(problem)
        if model_type != "gemma2":
            known.setdefault("rope_local_base_freq", local.get("rope_theta"))
        scaling = _copied_object(scaling["full_attention"], "rope_parameters of full_attention", source)
    known.setdefault("rope_theta", scaling.pop("rope_theta", None))
    if "partial_rotary_factor" in scaling:
        known["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
    if scaling.get("rope_type", "default") != "default":
        known["rope_scaling"] = scaling
    return known


def _copied_object(value: object, name: str, source: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ModelError(f"{source}: {name} = {value!r:.60}; expected an object")
    return dict(cast("dict[str, Any]", value))

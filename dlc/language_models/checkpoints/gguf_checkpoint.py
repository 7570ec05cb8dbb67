"""Checkpoints in GGUF files: their metadata and tensors under the names that Hugging Face gives them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError, UnsupportedError
from dlc.language_models.checkpoints.checkpoint import Checkpoint, ModelConfig, ModelWeights
from dlc.language_models.checkpoints.gguf_file import GgufFile, GgufTensor
from dlc.language_models.checkpoints.hugging_face_names import mixtral_options
from dlc.language_models.quantized_matrix import QuantizedMatrix, Weight

# Options of all architectures, after the prefix of the architecture.
_OPTIONS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attention.sliding_window_pattern": "sliding_window_pattern",
    "attention.clamp_kqv": "clip_qkv",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "expert_weights_norm": "norm_topk_prob",
}
# Options that repeat others or are checked below.
_DERIVED_OPTIONS = {
    "vocab_size",
    "attention.value_length",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
}

_ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
_MLP = {
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# Tensors of all experts of a layer, stacked along axis 0.
_EXPERTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}
_TOP = {"token_embd": "embed_tokens", "output_norm": "norm", "position_embd": "position_embeddings"}


@dataclass(frozen=True)
class _Architecture:
    """An architecture of GGUF.

    Attributes:
        model_type: The family, as Hugging Face calls it.
        layer_names: The names of the tensors of a layer, where they differ.
        is_rotary_interleaved: Rows of query and key weights are ordered for rotations of adjacent features.
        options: Options that files do not have.
    """

    model_type: str
    layer_names: Mapping[str, str] = field(default_factory=dict[str, str])
    is_rotary_interleaved: bool = False
    options: Callable[[dict[str, Any]], dict[str, Any]] = lambda options: {}


def _llama_options(known: dict[str, Any]) -> dict[str, Any]:
    return mixtral_options(known) if known.get("num_experts") else {}


def _gemma_options(pattern: int, layers_of_largest: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def options(known: dict[str, Any]) -> dict[str, Any]:
        heads = known.get("num_attention_heads")
        is_largest = known.get("num_hidden_layers") == layers_of_largest and isinstance(heads, int) and heads > 0
        scalar = known.get("hidden_size", 0) // heads if is_largest else known.get("head_dim")
        return {"sliding_window_pattern": pattern, "query_pre_attn_scalar": scalar, "norms_include_one": True}

    return options


_ARCHITECTURES = {
    "llama": _Architecture("llama", is_rotary_interleaved=True, options=_llama_options),
    "qwen2": _Architecture("qwen2"),
    "qwen3": _Architecture("qwen3"),
    "qwen2moe": _Architecture("qwen2_moe"),
    "qwen3moe": _Architecture("qwen3_moe", options=lambda known: {"norm_topk_prob": True}),
    "gemma2": _Architecture("gemma2", _POST_NORMS, options=_gemma_options(2, 46)),
    "gemma3": _Architecture("gemma3_text", _POST_NORMS, options=_gemma_options(6, 62)),
    "phi3": _Architecture("phi3", {"ffn_up": "mlp.gate_up_proj"}),
    "gpt2": _Architecture("gpt2"),
    "olmo": _Architecture("olmo", is_rotary_interleaved=True),
    "olmo2": _Architecture("olmo2", {k: v for k, v in _POST_NORMS.items() if k != "ffn_norm"}),
}


def read_gguf(path: Path) -> Checkpoint:
    """Read a file. Raises what GgufFile.read raises, and UnsupportedError for an unknown architecture or option."""
    file = GgufFile.read(path)
    name = file.metadata.get("general.architecture")
    architecture = _ARCHITECTURES.get(name) if isinstance(name, str) else None
    if architecture is None:
        supported = ", ".join(_ARCHITECTURES)
        raise UnsupportedError(f"{path}: architecture {name!r} is not supported; supported: {supported}")
    assert isinstance(name, str)
    options = _options(file, name, architecture)
    model_type = architecture.model_type
    if model_type == "llama" and options.get("num_experts"):
        model_type = "mixtral"
    weights = _weights(file, architecture, options)
    options["tie_word_embeddings"] = "lm_head.weight" not in weights.shapes
    return Checkpoint(path.stem, model_type, ModelConfig(options, str(path)), weights, (path,), file.metadata)


def _options(file: GgufFile, name: str, architecture: _Architecture) -> dict[str, Any]:
    options: dict[str, Any] = {}
    given = {k.removeprefix(f"{name}."): v for k, v in file.metadata.items() if k.startswith(f"{name}.")}
    unknown = sorted(given.keys() - _OPTIONS.keys() - _DERIVED_OPTIONS)
    if unknown:
        listed = [f"{name}.{k} = {given[k]!s:.60}" for k in unknown]
        raise UnsupportedError(f"{file.path}: options that are not supported: {', '.join(listed)}", listed)
    given = {key: _single_value(file, f"{name}.{key}", value) for key, value in given.items()}
    options |= {_OPTIONS[key]: value for key, value in given.items() if key in _OPTIONS}
    heads, hidden = options.get("num_attention_heads"), options.get("hidden_size")
    if isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
        options.setdefault("head_dim", hidden // heads)
    head_size = options.get("head_dim")
    for key in ("attention.value_length", "rope.dimension_count"):
        if head_size is not None and given.get(key, head_size) != head_size:
            raise UnsupportedError(f"{file.path}: option {name}.{key} = {given[key]}; expected the head size {head_size}")
    if (embedding := file.tensors.get("token_embd.weight")) is not None:
        options["vocab_size"] = embedding.shape[0]
    scaling = given.get("rope.scaling.type", "none")
    if scaling != "none" and "rope_freqs.weight" not in file.tensors:
        context = given.get("rope.scaling.original_context_length")
        options["rope_scaling"] = {
            "rope_type": scaling,
            "factor": given.get("rope.scaling.factor"),
            "original_max_position_embeddings": context,
        }
    if (factors := file.tensors.get("rope_freqs.weight")) is not None:
        options["rope_scaling"] = {"rope_type": "factors", "factors": _decode(factors)}
    return {**architecture.options(options), **options}


def _single_value(file: GgufFile, name: str, value: Any) -> Any:
    """Return the value of an option, which may be stored once per layer. Raises UnsupportedError for different values."""
    values = cast("list[Any]", value if isinstance(value, list) else np.asarray(value).reshape(-1).tolist())
    if not values or any(other != values[0] for other in values):
        raise UnsupportedError(f"{file.path}: {name} = {value!s:.60}; expected the same value for all layers")
    return values[0]


def _weights(file: GgufFile, architecture: _Architecture, options: Mapping[str, Any]) -> ModelWeights:
    sources: dict[str, Callable[[], Weight]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for tensor in file.tensors.values():
        name = _name(tensor.name, architecture)
        if "{expert}" not in name:
            sources[name], shapes[name] = _source(tensor, name, architecture, options), tensor.shape
            continue
        if len(tensor.shape) != 3:
            raise ModelError(f"{file.path}: tensor {tensor.name!r} has shape {tensor.shape}; expected one matrix per expert")
        for e in range(tensor.shape[0]):
            rows = slice(e * tensor.shape[1], (e + 1) * tensor.shape[1])
            expert = GgufTensor(tensor.name, tensor.shape[1:], tensor.type, tensor.data[rows])
            expert_name = name.replace("{expert}", str(e))
            sources[expert_name], shapes[expert_name] = _source(expert, expert_name, architecture, options), expert.shape
    is_ignored: Callable[[str], bool] = lambda name: name.startswith("rope_freqs.")  # noqa: E731
    return ModelWeights(str(file.path), shapes, lambda name: sources[name](), is_ignored)


def _name(name: str, architecture: _Architecture) -> str:
    """Return the name that Hugging Face gives a tensor; unknown names stay as they are."""
    stem, _, suffix = name.rpartition(".")
    if stem in _TOP:
        return f"model.{_TOP[stem]}.{suffix}"
    if stem == "output":
        return f"lm_head.{suffix}"
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if match is None:
        return name
    layer, part = match.groups()
    if part in _EXPERTS:
        return f"model.layers.{layer}.mlp.experts.{{expert}}.{_EXPERTS[part]}.{suffix}"
    part = architecture.layer_names.get(part) or (_ATTENTION | _MLP).get(part, part)
    return f"model.layers.{layer}.{part}.{suffix}"


def _source(tensor: GgufTensor, name: str, architecture: _Architecture, options: Mapping[str, Any]) -> Callable[[], Weight]:
    match = re.search(r"self_attn\.([qk])_proj\.(weight|bias)$", name)
    heads = options.get("num_attention_heads" if match is not None and match[1] == "q" else "num_key_value_heads")
    if match is None or not architecture.is_rotary_interleaved or not isinstance(heads, int) or isinstance(heads, bool):
        return lambda: _decode(tensor)
    rows = tensor.shape[0]
    if heads < 1 or rows % (2 * heads):
        return lambda: _decode(tensor)
    # Feature 2·i + j of a head becomes feature j · D/2 + i.
    order = np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)

    def reordered() -> Weight:
        weight = _decode(tensor)
        return weight.rows(order) if isinstance(weight, QuantizedMatrix) else weight[order]

    return reordered


def _decode(tensor: GgufTensor) -> Weight:
    """Return a tensor as floats, or as a quantized matrix."""
    kind = tensor.type
    if kind.decode is None:
        assert kind.dtype is not None
        data: NDArray[Any] = tensor.data.view(kind.dtype) if math.prod(tensor.shape) else np.zeros(0, kind.dtype)
        return data.reshape(tensor.shape)
    if len(tensor.shape) != 2:
        raise UnsupportedError(f"tensor {tensor.name!r} of type {kind.name} has shape {tensor.shape}; expected a matrix")
    with np.errstate(all="ignore"):
        return kind.decode(tensor.data.reshape(tensor.shape[0], -1, kind.bytes))

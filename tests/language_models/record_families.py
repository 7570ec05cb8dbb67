"""Record the logits and greedy tokens that Transformers computes for small models of each family.

    python -m tests.language_models.record_families      (needs torch and transformers)

Weights are drawn from seeds that their names determine, so that only options, shapes and results are recorded.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.language_models.models import RECORDED, RECORDED_ENCODERS, TOKENS, read_header, write_model

COMMON = {
    "vocab_size": 96,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
    "short_factor": [1.0, 1.2, 1.5, 2.0],
    "long_factor": [2.0, 2.2, 2.5, 3.0],
    "original_max_position_embeddings": 32,
}
GPT2_SIZES = {"n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"rope_parameters": LLAMA3_ROPE}),
    "llama_biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True, "head_dim": 32, "tie_word_embeddings": True}),
    "mistral": ("MistralConfig", {"sliding_window": 5}),
    "mistral_window_1": ("MistralConfig", {"sliding_window": 1}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "gemma2": ("Gemma2Config", {"head_dim": 32, "sliding_window": 4, "query_pre_attn_scalar": 40}),
    "gemma3": (
        "Gemma3TextConfig",
        {"head_dim": 32, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "phi3": ("Phi3Config", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32}),
    "gpt2": ("GPT2Config", {**GPT2_SIZES, "scale_attn_by_inverse_layer_idx": True}),
    "olmo": ("OlmoConfig", {"clip_qkv": 1.5}),
    "olmo2": ("Olmo2Config", {}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4}),
    "qwen2_moe": ("Qwen2MoeConfig", {**EXPERTS, "shared_expert_intermediate_size": 80, "norm_topk_prob": False}),
    "qwen3_moe": ("Qwen3MoeConfig", {**EXPERTS, "head_dim": 32, "norm_topk_prob": True}),
}
ENCODER_SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
}
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", {}),
    "xlm-roberta": ("XLMRobertaConfig", {"type_vocab_size": 1}),
    "distilbert": ("DistilBertConfig", {"hidden_dim": 48}),
    "nomic_bert": ("NomicBertConfig", {}),
}
GREEDY_TOKENS = 6


def record(config_class: str, options: dict[str, Any]) -> dict[str, Any]:
    import torch
    import transformers

    common = {"vocab_size": 96, "bos_token_id": 1, "eos_token_id": 2} if config_class == "GPT2Config" else COMMON
    config = getattr(transformers, config_class)(**common, **options)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        shapes = read_header(folder / "model.safetensors")
        written = json.loads((folder / "config.json").read_text())
        write_model(folder, written, shapes)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype="float32").eval()
        ids = torch.tensor([TOKENS])
        with torch.no_grad():
            logits = model(ids).logits[0].float().numpy()
        # The cache of Transformers 5.24 keeps all tokens if sliding_window is 1: it slices keys with [-sliding_window + 1:].
        settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "use_cache": False}
        greedy = model.generate(ids, max_new_tokens=GREEDY_TOKENS, **settings)
    rows = [[round(float(x), 4) for x in row] for row in logits[[3, -1]]]
    return {"config": written, "shapes": shapes, "logits": rows, "greedy": greedy[0].tolist()[len(TOKENS) :]}


def record_encoder(config_class: str, options: dict[str, Any]) -> dict[str, Any]:
    import torch
    import transformers

    config = getattr(transformers, config_class)(**ENCODER_SIZES | options)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
        shapes, written = read_header(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
        write_model(folder, written, shapes)
        model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager", dtype="float32").eval()
        with torch.no_grad():
            x = model(torch.tensor([TOKENS])).last_hidden_state[0].numpy()
    vectors = {"mean": x.mean(0), "cls": x[0]}
    return {"config": written, "shapes": shapes, **{k: [round(float(e), 5) for e in v] for k, v in vectors.items()}}


def write(path: Path, recorded: dict[str, Any]) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in recorded.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    recorded = {name: record(*model) for name, model in MODELS.items()}
    write(RECORDED, recorded)
    write(RECORDED_ENCODERS, {name: record_encoder(*model) for name, model in ENCODERS.items()})
    print({name: np.round(value["greedy"], 2).tolist() for name, value in recorded.items()})


if __name__ == "__main__":
    main()

"""Families of language models compute the logits and greedy tokens of Transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import ModelError, UnsupportedError
from dlc.language_models.cached_attention import KvCache
from dlc.language_models.checkpoints.reading import read_checkpoint
from dlc.language_models.families.registry import build_decoder
from tests.language_models.models import RECORDED, TOKENS, write_model

MODELS: dict[str, Any] = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_greedy_tokens(name: str, tmp_path: Path) -> None:
    recorded = MODELS[name]
    write_model(tmp_path / name, recorded["config"], recorded["shapes"])
    decoder = build_decoder(read_checkpoint(tmp_path / name))

    @dlc.jit(donate_argnames=("caches",), num_threads=1)
    def step(tokens: Any, position: Any, caches: Any) -> Any:
        num_tokens = tokens.shape[0]
        count = np.full(1, num_tokens, np.int32)
        cache = KvCache(list(caches), np.zeros(1, np.int64), position[None], count, num_tokens, num_slots=1)
        x = decoder.embed(tokens, cache.positions)
        for layer in decoder.layers:
            x = layer(x, cache)
        return decoder.logits(x), cache.arrays

    caches: Any = [np.zeros((64, decoder.kv_heads, decoder.head_size), np.float32) for _ in range(2 * len(decoder.layers))]
    logits, caches = step(np.array(TOKENS, np.int32), np.int64(0), caches)
    expected = np.array(recorded["logits"])
    np.testing.assert_allclose(np.asarray(logits)[[3, -1]], expected, atol=2e-5 * np.abs(expected).max() + 1e-4)
    tokens: list[int] = []
    for position in range(len(TOKENS), len(TOKENS) + len(recorded["greedy"])):
        tokens.append(int(np.argmax(np.asarray(logits)[-1])))
        logits, caches = step(np.array(tokens[-1:], np.int32), np.int64(position), caches)
    assert tokens == recorded["greedy"]


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"model_type": "new_family"}, UnsupportedError, "new_family"),
        ({"new_option": 3}, UnsupportedError, "new_option = 3"),
        ({"hidden_size": "large"}, ModelError, "hidden_size = 'large'"),
        ({"hidden_size": 128}, ModelError, r"has shape \(96, 64\); expected \(96, 128\)"),
        ({"num_key_value_heads": 3}, ModelError, "num_key_value_heads = 3"),
        ({"rms_norm_eps": 10**400}, ModelError, "rms_norm_eps = 1000"),
        ({"num_hidden_layers": 1 << 40}, ModelError, "num_hidden_layers"),
        ({"num_hidden_layers": (1 << 31) - 1}, ModelError, "num_hidden_layers = 2147483647; expected at most 4096"),
        ({"num_hidden_layers": 1}, UnsupportedError, "model.layers.1"),
        ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, UnsupportedError, "spiral"),
        ({"rope_parameters": [1]}, ModelError, r"rope_parameters = \[1\]; expected an object"),
        ({"rope_parameters": {"full_attention": 3}}, ModelError, "full_attention = 3; expected an object"),
        (
            {"rope_parameters": {"full_attention": {}, "sliding_attention": True}},
            ModelError,
            "sliding_attention = True; expected an object",
        ),
        ({"hidden_act": "sine"}, UnsupportedError, "hidden_act = 'sine'"),
        ({"hidden_act": {}}, UnsupportedError, "hidden_act = {}"),
        ({"mlp_only_layers": 3}, ModelError, "mlp_only_layers = 3"),
        ({"quantization_config": {"quant_method": "fp8"}}, UnsupportedError, "fp8"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, UnsupportedError, "bits = 3"),
        ({"quantization_config": {"quant_method": "awq", "version": "gemv"}}, UnsupportedError, "version = 'gemv'"),
    ],
    ids=str,
)
def test_unknown_options_are_errors_by_name(
    change: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    recorded = MODELS["llama"]
    write_model(tmp_path, {**recorded["config"], **change}, recorded["shapes"])
    with pytest.raises(error, match=message):
        build_decoder(read_checkpoint(tmp_path))


def test_missing_and_unknown_tensors_are_errors_by_name(tmp_path: Path) -> None:
    recorded = MODELS["llama"]
    shapes = dict(recorded["shapes"])
    write_model(tmp_path, recorded["config"], {**shapes, "model.layers.0.adapter.weight": [4]})
    with pytest.raises(UnsupportedError, match="adapter"):
        build_decoder(read_checkpoint(tmp_path))
    del shapes["model.norm.weight"]
    write_model(tmp_path, recorded["config"], shapes)
    with pytest.raises(ModelError, match=r"'model\.norm\.weight' is missing"):
        build_decoder(read_checkpoint(tmp_path))

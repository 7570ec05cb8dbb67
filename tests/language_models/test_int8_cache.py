"""The int8 KV cache: attention close to that of floats, and a model that uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import ArgumentError
from dlc.language_models.cached_attention import KvCache, num_cache_arrays
from dlc.language_models.language_model import LanguageModel
from dlc.language_models.sampling import Sampling
from tests.language_models.models import write_llama

KV_HEADS, HEADS, HEAD_SIZE, ROWS, TOKENS = 2, 4, 32, 64, 3


def attend(dtype: Any, inputs: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """Return attention of the tokens, in steps of 3, and the caches."""

    @dlc.jit(donate_argnames=("caches",), num_threads=1)
    def step(tokens: Any, position: Any, caches: Any) -> Any:
        count = np.full(1, TOKENS, np.int32)
        cache = KvCache(list(caches), np.zeros(1, np.int64), position[None], count, TOKENS, num_slots=1)
        return cache.attend(0, tokens[:, :HEADS], tokens[:, HEADS : HEADS + KV_HEADS], tokens[:, -KV_HEADS:]), cache.arrays

    shapes = [(ROWS, KV_HEADS, HEAD_SIZE)] * 2 + [(ROWS, KV_HEADS)] * (num_cache_arrays(dtype) - 2)
    caches: Any = [np.zeros(shape, dtype if len(shape) == 3 else np.float32) for shape in shapes]
    outputs: list[np.ndarray] = []
    for position in range(0, len(inputs), TOKENS):
        output, caches = step(inputs[position : position + TOKENS], np.int64(position), caches)
        outputs.append(np.array(output))
    return np.concatenate(outputs), caches


def test_attention_is_close_to_that_of_floats() -> None:
    inputs = np.random.default_rng(0).standard_normal((18, HEADS + 2 * KV_HEADS, HEAD_SIZE)).astype(np.float32)
    # Scales are per token and head: others are not affected by a large one, and zeros stay zeros.
    inputs[3, -1] *= 1000
    inputs[4, HEADS] = 0
    exact, floats = attend(np.float32, inputs)
    rounded, integers = attend(np.int8, inputs)
    for token in range(len(inputs)):
        for head in range(HEADS):
            part = slice(head * HEAD_SIZE, (head + 1) * HEAD_SIZE)
            assert np.abs(exact[token, part] - rounded[token, part]).max() < 0.015 * np.abs(exact[token, part]).max()
    for array, values, scales in zip(floats, integers[:2], integers[2:], strict=True):
        largest = np.abs(array).max(-1, keepdims=True)
        error = np.abs(np.asarray(values) * np.asarray(scales)[..., None] - array)
        assert (error <= largest / 250).all()


def test_a_model_with_an_int8_cache(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "m.gguf", is_quantized=False, num_layers=1)
    logits: list[np.ndarray] = []
    for dtype in ("int8", "f32"):
        session = LanguageModel.load(path, cache_dtype=dtype, context=64, target="reference").session()
        session.advance([5, 17, 3, 88], Sampling())
        session.advance([9], Sampling())
        logits.append(np.array(session.logits))
    assert 0 < np.abs(logits[0] - logits[1]).max() < 0.02 * np.abs(logits[1]).max()
    with pytest.raises(ArgumentError, match="cache_dtype = 'int4'; expected f32 or f16 or int8"):
        LanguageModel.load(path, cache_dtype="int4")

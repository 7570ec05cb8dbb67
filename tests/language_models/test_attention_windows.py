"""Attention windows: token i attends to tokens i - window + 1 to i, in prompts, decode steps and drafts, for each cache dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
from dlc.language_models.cached_attention import KvCache, num_cache_arrays

KV_HEADS, HEADS, HEAD_SIZE, CAPACITY, NUM_SLOTS = 1, 2, 16, 48, 3
# The slot of each of two texts.
SLOTS = np.array([2, 0])
# The number of tokens of both texts in each step: prompts shorter and longer than the windows, single tokens and drafts.
STEPS = [(2, 6), (1, 6), (1, 1), (3, 6), (1, 1), (1, 6), (6, 1), (1, 1)]
NUM_TOKENS = 6


def windowed_attention(inputs: np.ndarray, window: int) -> np.ndarray:
    """Return the attention of one text [tokens, HEADS · HEAD_SIZE], one token at a time."""
    outputs = np.zeros((len(inputs), HEADS, HEAD_SIZE))
    for i in range(len(inputs)):
        visible = inputs[max(i - window + 1, 0) : i + 1].astype(np.float64)
        for head in range(HEADS):
            scores = visible[:, HEADS] @ inputs[i, head] / np.sqrt(HEAD_SIZE)
            weights = np.exp(scores - scores.max())
            outputs[i, head] = weights @ visible[:, HEADS + 1] / weights.sum()
    return outputs.reshape(len(inputs), -1)


@pytest.mark.parametrize("window", [1, 2, 3, 17])
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-6), (np.float16, 1e-3), (np.int8, 0.015)], ids=str)
def test_tokens_attend_to_their_window(dtype: Any, tolerance: float, window: int) -> None:
    @dlc.jit(donate_argnames=("caches",), num_threads=1)
    def step(tokens: Any, position: Any, count: Any, caches: Any) -> Any:
        cache = KvCache(list(caches), SLOTS, position, count, tokens.shape[1], NUM_SLOTS)
        rows = tokens.reshape((-1, HEADS + 2 * KV_HEADS, HEAD_SIZE))
        query, key, value = rows[:, :HEADS], rows[:, HEADS : HEADS + KV_HEADS], rows[:, HEADS + KV_HEADS :]
        return cache.attend(0, query, key, value, window=window), cache.arrays

    lengths = np.sum(STEPS, 0)
    shape = HEADS + 2 * KV_HEADS, HEAD_SIZE
    texts = [np.random.default_rng(i).standard_normal((n, *shape)).astype(np.float32) for i, n in enumerate(lengths)]
    rows = NUM_SLOTS * CAPACITY
    shapes = [(rows, KV_HEADS, HEAD_SIZE)] * 2 + [(rows, KV_HEADS)] * (num_cache_arrays(dtype) - 2)
    caches: Any = [np.zeros(s, dtype if len(s) == 3 else np.float32) for s in shapes]
    position, outputs = np.zeros(2, np.int64), [list[np.ndarray](), list[np.ndarray]()]
    for counts in STEPS:
        tokens = np.zeros((2, NUM_TOKENS if max(counts) > 1 else 1, *shape), np.float32)
        for i, count in enumerate(counts):
            tokens[i, :count] = texts[i][position[i] : position[i] + count]
        result, caches = step(tokens, position, np.array(counts, np.int32), caches)
        mixed = np.asarray(result).reshape(*tokens.shape[:2], -1)
        for i, count in enumerate(counts):
            outputs[i].extend(mixed[i, :count])
        position = position + counts
    for inputs, output in zip(texts, outputs, strict=True):
        expected = windowed_attention(inputs, window)
        np.testing.assert_allclose(output, expected, atol=tolerance * np.abs(expected).max())

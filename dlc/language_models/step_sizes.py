"""The sizes of the programs of a language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.target import Target

CACHE_DTYPES: Mapping[str, Any] = {"f32": np.float32, "f16": np.float16, "int8": np.int8}
# The supported minimum bits of activations in products with quantized weights.
ACTIVATION_BITS = (8, 16)
# The texts of the smallest program for several texts, which costs little more than that for one.
_MIN_BATCH_TEXTS = 4
# The tokens of the program for short prompts, whose activations have 16 bits.
_SHORT_PROMPT_TOKENS = 16
# The same for targets without byte products that accumulate in 32 bits: on AVX2, four rows take about as long as reading the
# weights four times.
_SLOW_PROMPT_TOKENS = 4
# Reading the weights takes longer than products of 16 bits with the activations of this number of texts.
_MAX_EXACT_TEXTS = 2


@dataclass(frozen=True)
class StepSizes:
    """The sizes of a compiled model.

    Attributes:
        context: The number of positions of a slot of the caches.
        prompt_tokens: The numbers of tokens of the programs for prompts, ascending.
        num_slots: The number of slots: of texts that may be decoded together.
        draft_tokens: The number of drafted tokens that a step verifies; the rows of its program are tokens of one text.
        min_activation_bits: The minimum bits of activations in products with quantized weights, for all programs.
    """

    context: int
    prompt_tokens: tuple[int, ...]
    cache_dtype: str = "f32"
    num_slots: int = 1
    draft_tokens: int = 0
    min_activation_bits: int = 8

    @property
    def programs(self) -> list[tuple[int, int]]:
        """The shapes [R, T] of the tokens of each program."""
        doublings = (_MIN_BATCH_TEXTS << k for k in range(self.num_slots.bit_length()))
        batches = sorted({min(texts, self.num_slots) for texts in doublings} - {1})
        verification = [(self.draft_tokens + 1, 1)] if self.draft_tokens else []
        return [(1, 1), *((1, tokens) for tokens in self.prompt_tokens), *((texts, 1) for texts in batches), *verification]

    def activation_bits(self, texts: int, tokens: int) -> int:
        """Return the minimum bits of activations: 16 for up to two texts, short prompts and drafts."""
        is_exact = (self.draft_tokens or texts <= _MAX_EXACT_TEXTS) and tokens <= _SHORT_PROMPT_TOKENS
        return 16 if is_exact else self.min_activation_bits


def prompt_tokens(target: Target) -> tuple[int, ...]:
    """Return the chunk sizes of the programs for prompts (prefill).

    Chunks are larger if the target accumulates byte products in 32 bits, since its rows take less time.
    """
    if "u8i8" in target.dot_products:
        return _SHORT_PROMPT_TOKENS, 64
    longest = target.costs.max_packed_pair_rows
    return (_SLOW_PROMPT_TOKENS, longest) if target.dot_products and longest > _SLOW_PROMPT_TOKENS else (longest,)

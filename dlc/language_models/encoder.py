"""Encoders: functions from token ids to a vector per token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlc.ragged import Ragged


@dataclass(frozen=True)
class Encoder:
    """An encoder of texts, as a function on a ragged batch.

    Attributes:
        vocabulary_size: The number of token ids.
        max_tokens: The maximum number of tokens of a text.
        size: The number of features of a token.
        encode: token ids, a row [] per token → features, a row [size] per token.
    """

    vocabulary_size: int
    max_tokens: int
    size: int
    encode: Callable[[Ragged], Ragged]

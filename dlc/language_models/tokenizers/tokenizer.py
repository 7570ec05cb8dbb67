"""The interface of tokenizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """Text to token ids and back.

    Attributes:
        end_tokens: The ids that end a text.
        chat_template: The Jinja template of conversations, if there is one.
        special_texts: Texts of special tokens by their role, such as bos_token, for the template.
        max_token_characters: The maximum number of characters of a token; None if it is unknown.
    """

    end_tokens: frozenset[int]
    max_token_characters: int | None
    chat_template: str | None
    special_texts: Mapping[str, str]

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Return the ids of a text; `add_special` adds the token that begins texts, if the model has one."""
        ...

    def decode_bytes(self, token: int) -> bytes:
        """Return the bytes that a token appends to the text; none for special tokens."""
        ...


def decode(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Return the text of tokens."""
    return b"".join(map(tokenizer.decode_bytes, tokens)).decode("utf-8", "replace")

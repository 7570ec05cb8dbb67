"""The vocabulary in the metadata of a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError

# Kinds of tokens.
_CONTROL, _USER_DEFINED, _BYTE = 3, 4, 6
_END_FIELDS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Texts that end a turn, for files without a field for them.
_END_TEXTS = ("<end_of_turn>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>")


def byte_of(text: str) -> int | None:
    """Return the byte of a token `<0xAB>`, None for another text."""
    match = re.fullmatch("<0x([0-9A-Fa-f]{2})>", text)
    return None if match is None else int(match[1], 16)


def _numbers(metadata: Mapping[str, Any], source: str, name: str, default: NDArray[Any]) -> NDArray[Any]:
    """Return an array with a number for each token. Raises ModelError if the field is none."""
    values = metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(values, np.ndarray) or cast("NDArray[Any]", values).shape != default.shape:
        raise ModelError(f"{source}: tokenizer.ggml.{name} is not a list of {default.size} numbers, one for each token")
    return cast("NDArray[Any]", values)


@dataclass(frozen=True)
class GgufVocabulary:
    """The tokens of a file, with their kinds and scores.

    Attributes:
        texts: The text of each token.
        kinds: The kind of each token.
        scores: The score of each token, for tokenizers that merge by score.
        special: The ids of tokens that are matched in the text before it is split, by text.
    """

    metadata: Mapping[str, Any]
    source: str
    texts: Sequence[str]
    kinds: NDArray[Any]
    scores: NDArray[Any]
    special: Mapping[str, int]

    @staticmethod
    def of(metadata: Mapping[str, Any], source: str) -> GgufVocabulary:
        """Read the fields of a file. Raises ModelError for missing or mismatched ones."""
        texts = metadata.get("tokenizer.ggml.tokens")
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in cast("list[Any]", texts)):
            raise ModelError(f"{source}: tokenizer.ggml.tokens is not a list of texts")
        texts = cast("list[str]", texts)
        kinds = _numbers(metadata, source, "token_type", np.ones(len(texts), np.int32))
        scores = _numbers(metadata, source, "scores", np.zeros(len(texts), np.float32))
        for i in np.flatnonzero(kinds == _BYTE):
            if byte_of(texts[int(i)]) is None:
                raise ModelError(
                    f"{source}: token {i} is a byte with the text {texts[int(i)]!r:.20}; expected '<0x00>' to '<0xFF>'"
                )
        is_special = (kinds == _CONTROL) | (kinds == _USER_DEFINED)
        special = {texts[int(i)]: int(i) for i in np.flatnonzero(is_special) if texts[int(i)]}
        return GgufVocabulary(metadata, source, texts, kinds, scores, special)

    def field(self, name: str, default: Any = None) -> Any:
        """Return the metadata field `tokenizer.ggml.name`."""
        return self.metadata.get(f"tokenizer.ggml.{name}", default)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean field. Raises ModelError if it is none."""
        value = self.field(name, default)
        if not isinstance(value, bool):
            raise ModelError(f"{self.source}: tokenizer.ggml.{name} = {value!r:.60}; expected true or false")
        return value

    @property
    def chat_template(self) -> str | None:
        """The Jinja template of conversations."""
        template = self.metadata.get("tokenizer.chat_template")
        return template if isinstance(template, str) else None

    def token(self, name: str) -> int | None:
        """Return the id in a field such as bos_token_id, None without one. Raises ModelError if it is not a token."""
        value = self.field(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(self.texts):
            raise ModelError(f"{self.source}: tokenizer.ggml.{name} = {value!r}; expected one of {len(self.texts)} tokens")
        return value

    @property
    def end_tokens(self) -> frozenset[int]:
        """The ids that end a text."""
        ends = {token for name in _END_FIELDS if (token := self.token(name)) is not None}
        return frozenset(ends | {self.special[text] for text in _END_TEXTS if text in self.special})

    @property
    def special_texts(self) -> dict[str, str]:
        """The texts of special tokens by their role."""
        ids = {role: self.token(f"{role}_id") for role in ("bos_token", "eos_token", "unknown_token", "padding_token")}
        return {role: self.texts[token] for role, token in ids.items() if token is not None}

    def is_control(self, token: int) -> bool:
        """Return whether a token has no text of its own."""
        return self.kinds[token] == _CONTROL

    def is_byte(self, token: int) -> bool:
        """Return whether a token is a single byte, written as `<0xAB>`."""
        return self.kinds[token] == _BYTE

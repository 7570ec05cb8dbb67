"""SentencePiece's byte-pair encoding: the adjacent pair whose merged token has the best score is merged first.

The algorithm of `BPE` in SentencePiece (Kudo and Richardson, 2018), with bytes as tokens for characters that have none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Any

from dlc.language_models.tokenizers.gguf_vocabulary import GgufVocabulary, byte_of

# SentencePiece writes a space as this character.
_SPACE = "\u2581"


class ScoreTokenizer:
    """The tokenizer of GGUF files whose `tokenizer.ggml.model` is `llama`."""

    def __init__(self, vocabulary: GgufVocabulary) -> None:
        self._vocabulary = vocabulary
        self._ids = {text: i for i, text in enumerate(vocabulary.texts)}
        self._scores = vocabulary.scores
        self._byte_ids = [self._ids.get(f"<0x{byte:02X}>") for byte in range(256)]
        self._special = sorted(vocabulary.special, key=len, reverse=True)
        self._first = vocabulary.token("bos_token_id") if vocabulary.flag("add_bos_token", True) else None
        self._adds_space = vocabulary.flag("add_space_prefix", True)
        self._unknown = vocabulary.token("unknown_token_id")
        self.end_tokens = vocabulary.end_tokens
        self.special_texts: Mapping[str, str] = vocabulary.special_texts
        self.chat_template = vocabulary.chat_template
        self.max_token_characters: int | None = max(map(len, vocabulary.texts), default=None)

    @staticmethod
    def of_gguf(metadata: Mapping[str, Any], source: str) -> ScoreTokenizer:
        """Return the tokenizer of a file's metadata. Raises ModelError for missing or mismatched fields."""
        return ScoreTokenizer(GgufVocabulary.of(metadata, source))

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Return the ids of a text; `add_special` adds the token that begins texts, if the model has one."""
        ids = [self._first] if add_special and self._first is not None else []
        start, is_first = 0, True
        # Only special tokens that occur: compiling a pattern of thousands takes longer than loading the model.
        special = [re.escape(token) for token in self._special if token in text]
        for match in re.finditer("|".join(special), text) if special else ():
            ids += self._encode_text(text[start : match.start()], is_first)
            ids.append(self._vocabulary.special[match[0]])
            start, is_first = match.end(), False
        return ids + self._encode_text(text[start:], is_first)

    def decode_bytes(self, token: int) -> bytes:
        """Return the bytes that a token appends to the text; none for special tokens."""
        vocabulary = self._vocabulary
        if not 0 <= token < len(vocabulary.texts) or vocabulary.is_control(token):
            return b""
        text = vocabulary.texts[token]
        byte = byte_of(text) if vocabulary.is_byte(token) else None
        return bytes([byte]) if byte is not None else text.replace(_SPACE, " ").encode()

    def _encode_text(self, text: str, is_first: bool) -> list[int]:
        if not text:
            return []
        prefix = _SPACE if self._adds_space and is_first else ""
        pieces: list[str | None] = list(prefix + text.replace(" ", _SPACE))
        count = len(pieces)
        following = list(range(1, count + 1))
        preceding = list(range(-1, count - 1))
        queue = [entry for i in range(count - 1) if (entry := self._merge(pieces, i, i + 1)) is not None]
        heapify(queue)
        while queue:
            _, left, right, merged = heappop(queue)
            first, second = pieces[left], pieces[right] if right < count else None
            # Stale entry: one of the pieces has been merged since.
            if first is None or second is None or following[left] != right or first + second != merged:
                continue
            pieces[left], pieces[right] = merged, None
            following[left] = after = following[right]
            if after < count:
                preceding[after] = left
            for a, b in ((preceding[left], left), (left, after)):
                if a >= 0 and b < count and (entry := self._merge(pieces, a, b)) is not None:
                    heappush(queue, entry)
        return [token for piece in pieces if piece is not None for token in self._piece_tokens(piece)]

    def _merge(self, pieces: list[str | None], left: int, right: int) -> tuple[float, int, int, str] | None:
        """Return an entry of the queue: the best score first, then the leftmost; None if the pieces do not merge."""
        merged = f"{pieces[left]}{pieces[right]}"
        token = self._ids.get(merged)
        return None if token is None else (-float(self._scores[token]), left, right, merged)

    def _piece_tokens(self, piece: str) -> list[int]:
        token = self._ids.get(piece)
        if token is not None:
            return [token]
        byte_tokens = [self._byte_ids[byte] for byte in piece.encode("utf-8", "surrogatepass")]
        if all(t is not None for t in byte_tokens):
            return [t for t in byte_tokens if t is not None]
        return [] if self._unknown is None else [self._unknown]

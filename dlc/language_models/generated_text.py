"""A text while it is generated, and its result."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from dlc.language_models.sampling import Sampling
from dlc.language_models.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Generation:
    """Generated text.

    Attributes:
        text: The text after the prompt.
        tokens: Its token ids.
        prompt_tokens: The token ids of the prompt.
        finish_reason: `end` if the model ended the text, `length` if the maximum was reached.
        tokens_per_s, prompt_tokens_per_s: The speed of generation and of prompt processing, in tokens per second.
    """

    text: str
    tokens: list[int]
    prompt_tokens: list[int]
    finish_reason: str
    tokens_per_s: float
    prompt_tokens_per_s: float


class Text:
    """A text of a batch: its prompt, and the tokens after it.

    Attributes:
        position: The number of tokens whose keys and values are in the caches.
        slot: The slot of its caches; None before the first step.
        is_cancelled: Set to end the text before the next step.
    """

    def __init__(self, prompt: Sequence[int], max_tokens: int, sampling: Sampling, end_tokens: frozenset[int]) -> None:
        self.prompt, self.sampling = list(prompt), sampling
        self.tokens: list[int] = []
        self.position = 0
        self.slot: int | None = None
        self.is_cancelled = False
        self.finish_reason: str | None = None
        self._max_tokens, self._end_tokens = max_tokens, end_tokens
        self._pieces: list[str] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._start = self._first_token = self._end = 0.0

    @property
    def remaining(self) -> list[int]:
        """The tokens that the next steps append: the rest of the prompt, or the last generated token."""
        return self.prompt[self.position :] or self.tokens[-1:]

    @property
    def remaining_tokens(self) -> int:
        """The maximum number of tokens still to generate."""
        return self._max_tokens - len(self.tokens)

    @property
    def has_read_prompt(self) -> bool:
        return self.position >= len(self.prompt)

    def start(self, slot: int) -> None:
        """Begin to read the prompt."""
        self.slot, self._start = slot, perf_counter()

    def advance(self, num_tokens: int, token: int, tokenizer: Tokenizer) -> str:
        """Record that a step appended the first of the remaining tokens, and the token that follows.

        Returns the piece of text that it completes, which may be empty.
        """
        self.position += num_tokens
        if not self.has_read_prompt:
            return ""
        if not self.tokens:
            self._first_token = perf_counter()
        piece = ""
        if token in self._end_tokens:
            self.finish_reason = "end"
        else:
            self.tokens.append(token)
            piece = self._decoder.decode(tokenizer.decode_bytes(token))
            if len(self.tokens) == self._max_tokens:
                self.finish_reason = "length"
        if self.finish_reason is not None:
            self._end = perf_counter()
            piece += self._decoder.decode(b"", final=True)
        self._pieces.append(piece)
        return piece

    def result(self) -> Generation:
        """Return the result of a finished text."""
        assert self.finish_reason is not None
        seconds, prompt_seconds = self._end - self._first_token, self._first_token - self._start
        # The first token is the result of the prompt.
        speed = max(len(self.tokens) - 1, 0) / seconds if seconds else 0.0
        text, prompt_speed = "".join(self._pieces), len(self.prompt) / prompt_seconds
        return Generation(text, self.tokens, self.prompt, self.finish_reason, speed, prompt_speed)

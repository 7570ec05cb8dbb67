"""Draft tokens for speculative decoding (Leviathan et al., 2023).

One step of the model processes the last token and the draft tokens together, which costs little more than a step of one token.
It accepts draft tokens up to the first that differs from its own choice, so that the text is the same as without drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dlc.language_models.sampling import Sampling

# Lengths of the n-grams whose earlier occurrence is searched, in order of preference.
_NGRAM_TOKENS = (4, 3, 2)
# Only this number of recent tokens is searched.
_MAX_SEARCHED_TOKENS = 4096


class Drafter(Protocol):
    """Proposes draft tokens."""

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """Return up to `count` draft tokens that may follow a text; an empty list if there are none."""
        ...


class NgramDrafter:
    """Proposes the tokens that followed an earlier occurrence of the last tokens (prompt lookup)."""

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        recent = list(tokens[-_MAX_SEARCHED_TOKENS:])
        for size in _NGRAM_TOKENS:
            last = recent[-size:]
            for start in range(len(recent) - size - 1, -1, -1):
                if recent[start] == last[0] and recent[start : start + size] == last:
                    return recent[start + size : start + size + count]
        return []


class DraftSession(Protocol):
    """The steps of a language model on one text (`TextSession`)."""

    position: int

    def advance(self, tokens: Sequence[int], sampling: Sampling) -> int: ...


class ModelDrafter:
    """Proposes the most probable tokens of a smaller model, and reuses its KV cache for the common prefix of calls."""

    def __init__(self, session: DraftSession, context: int) -> None:
        self._session, self._context = session, context
        self._processed: list[int] = []

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        count = min(count, self._context - len(tokens))
        if count < 1:
            return []
        common_prefix = 0
        # The last token is always processed, since the next one is the result of its step.
        limit = min(len(self._processed), len(tokens) - 1)
        while common_prefix < limit and self._processed[common_prefix] == tokens[common_prefix]:
            common_prefix += 1
        self._session.position = common_prefix
        self._processed = list(tokens)
        draft = [self._session.advance(tokens[common_prefix:], Sampling())]
        while len(draft) < count:
            self._processed.append(draft[-1])
            draft.append(self._session.advance(draft[-1:], Sampling()))
        return draft

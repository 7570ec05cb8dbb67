"""Drafts of speculative decoding: guesses of the next tokens of a text, which one step of the model verifies.

A step processes the last token and the drafted ones together, and so costs little more than a step of one token. Drafted tokens
are accepted as long as they equal the tokens that the model chooses, so that the text is the same without drafts (Leviathan et
al., 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dlc.language_models.sampling import Sampling

# The numbers of tokens whose earlier occurrence is searched, in order.
_NGRAM_TOKENS = (4, 3, 2)
# Only this number of recent tokens is searched.
_MAX_SEARCHED_TOKENS = 4096


class Drafter(Protocol):
    """Proposes tokens."""

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """Return up to `count` tokens that may follow a text; none if there is no guess."""
        ...


class NgramDrafter:
    """Proposes what followed the last tokens where they occurred before (prompt lookup)."""

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
    """Proposes the most probable tokens of a smaller model, whose caches keep the tokens that texts have in common."""

    def __init__(self, session: DraftSession, context: int) -> None:
        self._session, self._context = session, context
        self._processed: list[int] = []

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        count = min(count, self._context - len(tokens))
        if count < 1:
            return []
        same = 0
        # The last token is always processed, since the next one is the result of its step.
        limit = min(len(self._processed), len(tokens) - 1)
        while same < limit and self._processed[same] == tokens[same]:
            same += 1
        self._session.position = same
        self._processed = list(tokens)
        draft = [self._session.advance(tokens[same:], Sampling())]
        while len(draft) < count:
            self._processed.append(draft[-1])
            draft.append(self._session.advance(draft[-1:], Sampling()))
        return draft

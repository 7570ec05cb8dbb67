"""Run the programs of a language model on the caches of its slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ArgumentError
from dlc.language_models.sampling import Sampling
from dlc.language_models.setting_limits import is_integer
from dlc.runtime.models.model import Model
from dlc.runtime.models.specialized_model import SpecializedModel

_STATE_NAMES = ("seen", "caches")


@dataclass(frozen=True)
class TextPart:
    """Tokens that a step appends to a text.

    Attributes:
        position: The number of earlier tokens of the text.
        slot: The slot of its caches.
    """

    tokens: Sequence[int]
    position: int
    slot: int
    sampling: Sampling


class StepRunner:
    """The programs of a model, and the caches of all slots.

    Attributes:
        num_slots: The number of slots.
        vocabulary_size: The number of token ids.
        max_texts: The maximum number of texts of a step.
        draft_tokens: The maximum number of drafted tokens that a step verifies.
    """

    def __init__(self, model: Model) -> None:
        infos = {info.name: info for info in model.inputs}
        self._state = [np.zeros([int(n) for n in i.shape], i.dtype) for n, i in infos.items() if n.startswith(_STATE_NAMES)]
        artifact = model.artifact
        assert isinstance(artifact, SpecializedModel)
        programs = {tuple(map(int, e.program.inputs[0].shape)): e.program for e in artifact.specializations.entries}
        self._programs = dict(sorted(programs.items()))
        self._prompt_tokens = [tokens for texts, tokens in self._programs if texts == 1 and tokens > 1]
        self.vocabulary_size = int(self._programs[1, 1].outputs[1].shape[1])
        self.num_slots = self._state[0].size // self.vocabulary_size
        # The rows of a step are texts, or with one slot the last token of a text and drafted ones.
        max_rows = max(texts for texts, _ in self._programs)
        self.max_texts = min(max_rows, self.num_slots)
        self.draft_tokens = max_rows - 1 if self.num_slots == 1 else 0

    def forget(self, slot: int) -> None:
        """Prepare a slot for another text."""
        self._state[0].reshape(self.num_slots, -1)[slot] = False

    def require_ids(self, tokens: Sequence[Any]) -> None:
        """Raise ArgumentError for no tokens or an unknown one."""
        if not len(tokens) or not all(is_integer(t) and 0 <= t < self.vocabulary_size for t in tokens):
            raise ArgumentError(f"tokens {list(tokens)[:8]}…: expected one or more ids below {self.vocabulary_size}")

    def chunk_size(self, total: int, remaining: int) -> int:
        """Return how many of the remaining tokens of a prompt of `total` tokens the next step should process.

        The largest chunks are for long prompts, while the remaining tokens fill at least three quarters of one.
        """
        first, last = self._prompt_tokens[0], self._prompt_tokens[-1]
        return min(remaining, last if total > last and 4 * remaining >= 3 * last else first)

    def run(self, parts: Sequence[TextPart]) -> tuple[list[int], Any]:
        """Append a part to each text: one part of several tokens, or up to `max_texts` parts of a token.

        With `draft_tokens`, parts of a token may be consecutive tokens of one text.

        Returns the next token of each text, and the logits [R, V], whose further rows are padding.
        """
        longest = max(len(part.tokens) for part in parts)
        texts, tokens = min(shape for shape in self._programs if shape[0] >= len(parts) and shape[1] >= longest)
        ids = np.zeros((texts, tokens), np.int32)
        count, position, slot = np.zeros(texts, np.int32), np.zeros(texts, np.int64), np.zeros(texts, np.int64)
        for r, part in enumerate(parts):
            ids[r, : len(part.tokens)] = part.tokens
            count[r], position[r], slot[r] = len(part.tokens), part.position, part.slot
        settings = _sampling_arrays(tuple(part.sampling for part in parts), texts)
        # Targets without donation return new arrays of the state.
        next_tokens, logits, *self._state = self._programs[texts, tokens].run_unchecked(
            [ids, count, position, slot, *settings, *self._state]
        )
        return [int(token) for token in np.asarray(next_tokens)[: len(parts)]], logits


# Consecutive steps mostly have equal settings.
@lru_cache(maxsize=16)
def _sampling_arrays(samplings: tuple[Sampling, ...], texts: int) -> tuple[NDArray[Any], ...]:
    """Return the sampling settings of R texts, an array [R] each; padding samples greedily."""
    defaults = Sampling()
    padded = [*samplings, *[defaults] * (texts - len(samplings))]
    dtypes = {name: array.dtype for name, array in defaults.arrays().items()}
    return tuple(np.array([getattr(s, f.name) for s in padded], dtypes[f.name]) for f in fields(Sampling))

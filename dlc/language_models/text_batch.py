"""Continuous batching: texts that start and end independently of each other are decoded together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from dlc.errors import ArgumentError
from dlc.language_models.drafts import Drafter, NgramDrafter
from dlc.language_models.generated_text import Generation, Text
from dlc.language_models.sampling import Sampling
from dlc.language_models.setting_limits import require_integer
from dlc.language_models.step_runner import StepRunner, TextPart
from dlc.language_models.tokenizers.tokenizer import Tokenizer
from dlc.runtime.models.model import Model

# A piece of a text, then its result, or the error that ends it.
Event: TypeAlias = "str | Generation | Exception"


class TextBatch:
    """Texts of one model. Each running text has a slot of the caches; others wait for one in the order of their arrival.

    Texts may be added, and cancelled by `Text.is_cancelled`, while another thread advances the batch.

    Attributes:
        running, waiting: The texts that have a slot, and the others.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, context: int, drafter: Drafter | None = None) -> None:
        self.running: list[Text] = []
        self.waiting: deque[Text] = deque()
        self._runner, self._tokenizer, self._context = StepRunner(model), tokenizer, context
        if drafter is not None and not self._runner.draft_tokens:
            raise ArgumentError("drafts need a model with draft_tokens; pass draft_tokens=4 to LanguageModel.load")
        self._drafter = drafter or NgramDrafter()
        # Texts whose prompts are read, one chunk of each in turn.
        self._prompts: deque[Text] = deque()

    @property
    def num_slots(self) -> int:
        return self._runner.num_slots

    def add(self, prompt: Sequence[int], max_tokens: int, sampling: Sampling, *, ignore_end: bool = False) -> Text:
        """Add a text after a prompt of token ids.

        With `ignore_end`, it continues after tokens that end texts. Raises ArgumentError for an unknown token, for a prompt
        that exceeds the context, and for a `max_tokens` that is not a positive integer.
        """
        self._runner.require_ids(prompt)
        require_integer("max_tokens", max_tokens, 1)
        if len(prompt) > self._context:
            raise ArgumentError(f"{len(prompt)} tokens exceed the context of {self._context}; load the model with a longer one")
        # The result of the last position needs no position of its own.
        limit = min(max_tokens, max(self._context - len(prompt), 1))
        text = Text(prompt, limit, sampling, frozenset() if ignore_end else self._tokenizer.end_tokens)
        self.waiting.append(text)
        return text

    def advance(self) -> Iterator[tuple[Text, Event]]:
        """Read a chunk of one prompt, then decode a token of each text whose prompt has been read; yield what results.

        So a running text waits for at most one chunk of another text's prompt.
        """
        self._remove_cancelled()
        self._start_waiting()
        if self._prompts:
            text = self._prompts.popleft()
            size = self._runner.chunk_size(len(text.prompt), len(text.remaining))
            events = self._step([text], size)
            if not text.has_read_prompt and text in self.running:
                self._prompts.append(text)
            yield from events
        decoding = [text for text in self.running if text.tokens]
        for start in range(0, len(decoding), self._runner.max_texts):
            texts = decoding[start : start + self._runner.max_texts]
            yield from self._step(texts, 1, self._draft(texts[0]) if self._runner.draft_tokens else [])

    def _draft(self, text: Text) -> list[int]:
        """Return draft tokens for a text."""
        # Rejected draft tokens would count as repetitions.
        if text.sampling.repetition_penalty != 1:
            return []
        count = min(self._runner.draft_tokens, text.remaining_tokens - 1, self._context - text.position - 1)
        return self._drafter.propose([*text.prompt, *text.tokens], count) if count > 0 else []

    def _step(self, texts: Sequence[Text], num_tokens: int, draft: Sequence[int] = ()) -> list[tuple[Text, Event]]:
        """Append the next tokens of each text; a draft follows the last token of a single text."""
        parts = [TextPart(text.remaining[:num_tokens], text.position, text.slot or 0, text.sampling) for text in texts]
        parts += [replace(parts[0], tokens=[token], position=parts[0].position + 1 + i) for i, token in enumerate(draft)]
        try:
            tokens, _ = self._runner.run(parts)
        except Exception as error:
            for text in texts:
                self._remove(text)
            return [(text, error) for text in texts]
        is_match = [drafted == token for drafted, token in zip(draft, tokens, strict=False)]
        num_accepted = [*is_match, False].index(False)
        events: list[tuple[Text, Event]] = []
        for text, token in zip([*texts, *[texts[0]] * num_accepted], tokens, strict=False):
            if text.finish_reason is not None:
                break
            if piece := text.advance(num_tokens, token, self._tokenizer):
                events.append((text, piece))
            if text.finish_reason is not None:
                self._remove(text)
                events.append((text, text.result()))
        return events

    def _start_waiting(self) -> None:
        used = {text.slot for text in self.running}
        for slot in range(self.num_slots):
            if slot not in used and self.waiting:
                text = self.waiting.popleft()
                self._runner.forget(slot)
                text.start(slot)
                self.running.append(text)
                self._prompts.append(text)

    def _remove_cancelled(self) -> None:
        for text in [text for text in self.running if text.is_cancelled]:
            self._remove(text)
        # Another thread may append; copying a deque is atomic, iteration in Python is not.
        for text in [text for text in self.waiting.copy() if text.is_cancelled]:
            self.waiting.remove(text)

    def _remove(self, text: Text) -> None:
        self.running.remove(text)
        if text in self._prompts:
            self._prompts.remove(text)

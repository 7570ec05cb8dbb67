"""Text generation for a server: requests of one language model are decoded together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from starlette.concurrency import run_in_threadpool

from dlc.errors import QueueFullError
from dlc.language_models.generated_text import Generation, Text
from dlc.language_models.language_model import LanguageModel
from dlc.language_models.sampling import Sampling
from dlc.language_models.text_batch import Event, TextBatch
from dlc.machine.cpus import running_on


class TextQueue:
    """The texts of one language model, which a step decodes together; others wait until one of them ends.

    `draft_model` proposes the tokens that a model with `draft_tokens` verifies.
    """

    def __init__(self, model: LanguageModel, max_pending: int, draft_model: LanguageModel | None = None) -> None:
        self.model = model
        self._batch = model.batch(None if draft_model is None else model.drafter_of(draft_model))
        self._max_pending = max_pending
        self._events: dict[Text, asyncio.Queue[Event]] = {}
        self._is_needed = asyncio.Event()

    @property
    def num_running(self) -> int:
        return min(len(self._events), self._batch.num_slots)

    @property
    def num_pending(self) -> int:
        return len(self._events) - self.num_running

    async def generate(self, prompt: Sequence[int], max_tokens: int, sampling: Sampling) -> AsyncGenerator[str | Generation]:
        """Yield the pieces of a text and then the whole result; when the generator is closed, the text is cancelled.

        Raises QueueFullError if too many texts wait, ArgumentError for a prompt that the model cannot continue.
        """
        if len(self._events) >= self._batch.num_slots + self._max_pending:
            raise QueueFullError(f"{self.model.name}: {self._max_pending} requests are waiting; try again later")
        text = self._batch.add(prompt, max_tokens, sampling)
        events = self._events[text] = asyncio.Queue()
        self._is_needed.set()
        try:
            while True:
                event = await events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if isinstance(event, Generation):
                    return
        finally:
            text.is_cancelled = True
            del self._events[text]

    async def run(self) -> None:
        """Advance the texts until this task is cancelled."""
        while True:
            if not self._events:
                self._is_needed.clear()
                await self._is_needed.wait()
            for text, event in await run_in_threadpool(_advance, self._batch, self.model.model.cpus):
                # The client of a cancelled text has disconnected.
                if text in self._events:
                    self._events[text].put_nowait(event)


def _advance(batch: TextBatch, cpus: frozenset[int] | None) -> list[tuple[Text, Event]]:
    """Advance the texts by a step on these processors, or on all of the process."""
    with running_on(cpus):
        return list(batch.advance())

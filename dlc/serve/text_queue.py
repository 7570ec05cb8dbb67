"""Round-robin text generation: requests start and end independently of each other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from dlc.errors import QueueFullError
from dlc.language_models.language_model import Generation, LanguageModel, stream
from dlc.language_models.sampling import Sampling


@dataclass(eq=False)
class _Text:
    """The text of a request: its generator, and a queue of the pieces that it yields, then the result or an error."""

    generator: Generator[str, None, Generation]
    events: asyncio.Queue[str | Generation | Exception] = field(default_factory=asyncio.Queue["str | Generation | Exception"])
    is_cancelled: bool = False


class TextQueue:
    """The texts of one language model. Up to `max_running` advance round-robin, one piece of text at a time; others wait.

    Each running text has its own KV caches, for the context of the model.
    """

    def __init__(self, model: LanguageModel, max_running: int, max_pending: int) -> None:
        self.model = model
        self.running: list[_Text] = []
        self._max_running, self._max_pending = max_running, max_pending
        self._waiting: deque[_Text] = deque()
        self._is_needed = asyncio.Event()

    @property
    def num_pending(self) -> int:
        return len(self._waiting)

    async def generate(self, prompt: Sequence[int], max_tokens: int, sampling: Sampling) -> AsyncGenerator[str | Generation]:
        """Yield the pieces of a text and then the whole result; when the generator is closed, the text is cancelled.

        Raises QueueFullError if too many texts wait.
        """
        if len(self.running) >= self._max_running and len(self._waiting) >= self._max_pending:
            raise QueueFullError(f"{self.model.name}: {self._max_pending} requests are waiting; try again later")
        text = _Text(stream(self.model, prompt, max_tokens, sampling))
        self._waiting.append(text)
        self._start_waiting()
        self._is_needed.set()
        try:
            while True:
                event = await text.events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if isinstance(event, Generation):
                    return
        finally:
            text.is_cancelled = True

    async def run(self) -> None:
        """Advance the texts until this task is cancelled."""
        while True:
            self._start_waiting()
            if not self.running:
                self._is_needed.clear()
                await self._is_needed.wait()
            for text in list(self.running):
                event = None if text.is_cancelled else await run_in_threadpool(_advance, text.generator)
                if not isinstance(event, str):
                    self.running.remove(text)
                if event is not None:
                    text.events.put_nowait(event)

    def _start_waiting(self) -> None:
        while self._waiting and len(self.running) < self._max_running:
            self.running.append(self._waiting.popleft())


def _advance(generator: Generator[str, None, Generation]) -> str | Generation | Exception:
    """Return the next piece of a text, or its result, or the error that ends it."""
    try:
        return next(generator)
    except StopIteration as end:
        return end.value
    except Exception as error:
        return error

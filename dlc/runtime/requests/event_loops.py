"""Results of futures in the event loops of asyncio.

A thread that ends a future queues it for the event loop that waits, and wakes the loop unless another thread has done so: a
wake-up takes ten microseconds, and the results of a batch need one.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future as BaseFuture
from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    import asyncio


class _EventLoop:
    """A running event loop, and its queue of futures to complete."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)
        self._ended = deque[Any]()
        self._is_woken = False

    def complete(self, waiter: Any) -> None:
        """Complete a future of the loop, from any thread."""
        self._ended.append(waiter)
        loop = self.loop()
        if self._is_woken or loop is None:
            return
        self._is_woken = True
        try:
            loop.call_soon_threadsafe(self._complete_ended)
        except RuntimeError:
            # The loop is closed: its tasks will not run.
            self._ended.clear()

    def _complete_ended(self) -> None:
        # Before the queue is read: a thread that adds a future from now on wakes the loop again.
        self._is_woken = False
        while self._ended:
            waiter = self._ended.popleft()
            if not waiter.done():
                waiter.set_result(None)


class _Local(threading.local):
    event_loop: _EventLoop | None = None


_local = _Local()


def result_in_event_loop(future: BaseFuture[Any]) -> Generator[Any, None, Any]:
    """Return the result of a future for a task of the event loop that runs in this thread.

    Cancels the future if the task is cancelled. Raises the error of the future, or asyncio.CancelledError if it is cancelled.
    """
    # Awaiting code has imported asyncio; importing it here would take as long as loading a model.
    asyncio = sys.modules["asyncio"]
    if not future.done():
        loop = asyncio.get_running_loop()
        event_loop = _local.event_loop
        if event_loop is None or event_loop.loop() is not loop:
            event_loop = _local.event_loop = _EventLoop(loop)
        waiter = loop.create_future()
        future.add_done_callback(lambda _: event_loop.complete(waiter))
        try:
            yield from waiter
        finally:
            if waiter.cancelled():
                future.cancel()
    if future.cancelled():
        raise asyncio.CancelledError
    return future.result()

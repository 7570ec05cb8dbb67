"""Locks, threads and the clock of the executor and of request batching; tests replace them to explore interleavings."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

# Starts a thread with a main function and a name. Raises RuntimeError if the system has no more threads.
StartThread: TypeAlias = "Callable[[Callable[[], None], str], None]"

# Idle threads exit after this time.
IDLE_SECONDS = 10.0


class Lock(AbstractContextManager[Any], Protocol):
    """A lock as in `threading`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


class Gate:
    """An auto-reset event for one waiting thread: `wait` returns after `open`, and resets the event."""

    __slots__ = ("_lock",)

    def __init__(self, make_lock: Callable[[], Lock]) -> None:
        self._lock = make_lock()
        self._lock.acquire()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the event is set; return False on a timeout, at the latest after `threading.TIMEOUT_MAX`."""
        return self._lock.acquire(timeout=-1 if seconds is None else min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def open(self) -> None:
        """Set the event, which must not be set."""
        self._lock.release()


def start_daemon(main: Callable[[], None], name: str) -> None:
    """Start a thread that does not keep the process alive."""
    threading.Thread(target=main, name=name, daemon=True).start()


@dataclass(frozen=True)
class Threading:
    """Creates locks and threads, and returns the time in seconds."""

    make_lock: Callable[[], Lock] = threading.Lock
    start_thread: StartThread = start_daemon
    clock: Callable[[], float] = monotonic

    def make_gate(self) -> Gate:
        return Gate(self.make_lock)


SYSTEM_THREADING = Threading()


class ForkedState(Protocol):
    """State that refers to requests of running threads."""

    def reset(self) -> None:
        """Forget all requests: in a forked child, their threads do not exist."""


_forked_states = WeakSet[ForkedState]()


def reset_in_child(state: ForkedState) -> None:
    """Reset a state in forked children of this process."""
    _forked_states.add(state)


def _reset_all() -> None:
    for state in [*_forked_states]:
        state.reset()


os.register_at_fork(after_in_child=_reset_all)

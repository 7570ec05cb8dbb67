"""Futures of submitted calls: those of `concurrent.futures`, which `await` and other submissions accept as well."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, InvalidStateError
from concurrent.futures import Future as BaseFuture
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from contextlib import AbstractContextManager, nullcontext
from logging import getLogger
from threading import TIMEOUT_MAX, Event, Lock, RLock, current_thread, local, main_thread
from typing import Any, cast

import numpy as np

from dlc.arrays import Array
from dlc.errors import AbsentPartError
from dlc.runtime.requests.event_loops import result_in_event_loop

# Common types of arguments that neither are nor contain futures: a fast path, as other checks take a microsecond.
_NO_FUTURES = frozenset[type]((np.ndarray, Array, int, float))
_log = getLogger("dlc")


class _Waiting(local):
    """The thread's context around each wait for a future: `section` returns it."""

    section: Callable[[], AbstractContextManager[None]] = nullcontext


waiting = _Waiting()


class _Event(Event):
    """An event on which a thread waits in its context."""

    def wait(self, timeout: float | None = None) -> bool:
        with waiting.section():
            return super().wait(timeout)


class _Waiters(list[Any]):
    """The waiters that `concurrent.futures.wait` and `as_completed` add; they wait for the event of a waiter afterwards."""

    __slots__ = ()

    def append(self, waiter: Any) -> None:
        if not isinstance(waiter.event, _Event):
            waiter.event = _Event()
        super().append(waiter)


class Future(BaseFuture[Any]):
    """The result of a submitted call.

    It is a `concurrent.futures.Future`, so that `concurrent.futures.wait` and `as_completed` accept it. `await future` waits in
    an event loop. `future["y"]` is the future of one output; as an argument of another submission, a future stands for its
    result.

    The state of the base class is guarded by a lock instead of a condition variable: creating, setting and reading a future
    takes a third of the time. A thread that waits blocks on a lock of its own.
    """

    def __init__(self) -> None:
        # The fields of the base class, whose constructor is not called: it creates a condition variable.
        self._condition: Any = RLock()
        self._state = PENDING
        self._result = self._exception = None
        self._waiters = _Waiters()
        self._done_callbacks: list[Any] = []
        # Locks on which threads wait for the end.
        self._blocked: list[Any] = []

    def withdraw(self) -> bool:
        """Remove the call from its queue; return whether it will not run."""
        return True

    def cancel(self) -> bool:
        """Cancel the call unless it has started; return whether it is cancelled."""
        return self.cancelled() or (self.withdraw() and self._end(CANCELLED_AND_NOTIFIED))

    def set_running_or_notify_cancel(self) -> bool:
        """Return whether the call runs now, because it is not cancelled."""
        with self._condition:
            if self._state == PENDING:
                self._state = RUNNING
            elif self._state != CANCELLED_AND_NOTIFIED:
                raise InvalidStateError(f"the call has started: {self!r}")
            return self._state == RUNNING

    def set_result(self, result: Any) -> None:
        """End the call."""
        if not self._end(FINISHED, result):
            raise InvalidStateError(f"the call has ended: {self!r}")

    def set_exception(self, exception: BaseException | None) -> None:
        """End the call with an error."""
        if not self._end(FINISHED, None, exception):
            raise InvalidStateError(f"the call has ended: {self!r}")

    def result(self, timeout: float | None = None) -> Any:
        """Return the result; wait for it, for at most `timeout` seconds. Raises the error of the call, or TimeoutError."""
        try:
            self._wait(timeout)
            if self._exception is not None:
                raise self._exception
            return self._result
        finally:
            # The traceback refers to this frame: with the future in it, that would be a reference cycle.
            del self

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of the call, or None; wait for it as `result` does."""
        self._wait(timeout)
        return self._exception

    def _wait(self, timeout: float | None) -> None:
        if self._state != FINISHED:
            end = Lock()
            end.acquire()
            with self._condition:
                if self._state not in (FINISHED, CANCELLED_AND_NOTIFIED):
                    self._blocked.append(end)
                else:
                    end.release()
            with waiting.section():
                is_ended = end.acquire(timeout=-1 if timeout is None else min(max(timeout, 0), TIMEOUT_MAX))
            if not is_ended:
                with self._condition:
                    if end in self._blocked:
                        self._blocked.remove(end)
                        raise FutureTimeoutError
            if self._state != FINISHED:
                raise CancelledError

    def _end(self, state: str, result: Any = None, exception: BaseException | None = None) -> bool:
        """End the call and wake all who wait; return False if it has ended, or runs and cannot be cancelled."""
        with self._condition:
            if self._state != PENDING and (self._state != RUNNING or state != FINISHED):
                return False
            self._result, self._exception, self._state = result, exception, state
            blocked, self._blocked = self._blocked, []
            for waiter in self._waiters:
                if state == CANCELLED_AND_NOTIFIED:
                    waiter.add_cancelled(self)
                elif exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
        for lock in blocked:
            lock.release()
        for callback in self._done_callbacks:
            try:
                callback(self)
            except BaseException as error:
                # Signal handlers raise in the main thread only: there, Ctrl-C ends the program.
                if not isinstance(error, Exception) and current_thread() is main_thread():
                    raise
                _log.exception("a callback of %r failed", self)
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        return result_in_event_loop(self)

    def __getitem__(self, key: Any) -> Future:
        """Return the future of one part of the result: an output by name, or a result of a function by index."""
        part = Future()

        def take(whole: BaseFuture[Any]) -> None:
            if part.set_running_or_notify_cancel():
                _copy_result(whole, part, key)

        self.add_done_callback(take)
        return part

    # Without it, iteration would call __getitem__ with 0, 1, 2, … forever.
    __iter__ = None


def _copy_result(done: BaseFuture[Any], target: BaseFuture[Any], key: Any) -> None:
    """Set the result of a running future from a part of the result of a future that is done, or its exception."""
    try:
        result = _part(done.result(timeout=0), key)
    except BaseException as error:
        target.set_exception(error)
    else:
        target.set_result(result)


def _part(result: Any, key: Any) -> Any:
    """Return one part of a result. Raises AbsentPartError if there is none."""
    try:
        return result[key]
    except (KeyError, IndexError, TypeError):
        names = (
            f"its outputs are {', '.join(map(str, cast('Mapping[Any, Any]', result)))}"
            if isinstance(result, Mapping)
            else f"it is a {type(result).__name__}"
        )
        if isinstance(result, tuple | list):
            names = f"it has {len(cast('Sequence[Any]', result))}, counted from 0"
        raise AbsentPartError(f"future[{key!r}]: the result has no such part; {names}") from None


def futures_in(values: Iterable[Any]) -> list[BaseFuture[Any]]:
    """Return the futures among arguments, which may be nested in tuples, lists and mappings."""
    found: list[BaseFuture[Any]] = []
    for value in values:
        if type(value) in _NO_FUTURES:
            continue
        if isinstance(value, dict | Mapping):
            found += futures_in(cast("Mapping[Any, Any]", value).values())
        elif isinstance(value, tuple | list):
            found += futures_in(cast("Sequence[Any]", value))
        elif isinstance(value, BaseFuture):
            found.append(cast("BaseFuture[Any]", value))
    return found


def with_results(value: Any) -> Any:
    """Return arguments with futures, which are done, replaced by their results. Raises the exception of one that failed."""
    if isinstance(value, BaseFuture):
        return cast("BaseFuture[Any]", value).result(timeout=0)
    if isinstance(value, Mapping):
        return {key: with_results(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, tuple) and hasattr(cast(object, value), "_fields"):
        return type(cast(Any, value))(*map(with_results, cast("Sequence[Any]", value)))
    if isinstance(value, tuple | list):
        return type(cast(Any, value))(map(with_results, cast("Sequence[Any]", value)))
    return value


def error_of(done: BaseFuture[Any]) -> BaseException | None:
    """Return the exception of a future that is done: CancelledError for a cancelled one, None for one with a result."""
    return CancelledError() if done.cancelled() else done.exception(timeout=0)

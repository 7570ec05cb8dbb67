"""Futures of submitted calls: those of `concurrent.futures`, which `await` and other submissions accept as well."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import Future as BaseFuture
from importlib import import_module
from typing import Any, cast

import numpy as np

from dlc.arrays import Array

# Common types of arguments that neither are nor contain futures: a fast path, as other checks take a microsecond.
_NO_FUTURES = frozenset[type]((np.ndarray, Array, int, float))


class Future(BaseFuture[Any]):
    """The result of a submitted call.

    It is a `concurrent.futures.Future`, so that `concurrent.futures.wait` and `as_completed` accept it. `await future` waits in
    an event loop. `future["y"]` is the future of one output; as an argument of another submission, a future stands for its
    result.
    """

    def __init__(self, cancel_request: Callable[[], bool] | None = None) -> None:
        super().__init__()
        self._cancel_request = cancel_request

    def cancel(self) -> bool:
        """Cancel the call unless it has started; return whether it is cancelled."""
        if self._cancel_request is not None and not self.cancelled() and not self._cancel_request():
            return False
        return super().cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        # The caller runs an event loop, so that asyncio is imported already; importing it takes as long as loading a model.
        return import_module("asyncio").wrap_future(self).__await__()

    def __getitem__(self, key: Any) -> Future:
        """Return the future of one part of the result: an output by name, or a result of a function by index."""
        part = Future()

        def take(whole: BaseFuture[Any]) -> None:
            if part.set_running_or_notify_cancel():
                copy_result(whole, part, lambda result: result[key])

        self.add_done_callback(take)
        return part

    # Without it, iteration would call __getitem__ with 0, 1, 2, … forever.
    __iter__ = None


def copy_result(done: BaseFuture[Any], target: BaseFuture[Any], select: Callable[[Any], Any] = lambda result: result) -> None:
    """Set the result of a running future from a future that is done, or its exception."""
    try:
        result = select(done.result(timeout=0))
    except BaseException as error:
        target.set_exception(error)
    else:
        target.set_result(result)


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

"""The queue of a model's or function's submitted calls: its bound, its number of streams, and ordered maps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, cast

from dlc.errors import ArgumentError
from dlc.options import is_count, processors
from dlc.runtime.requests.deadlines import checked_schedule
from dlc.runtime.requests.executor import Executor, QueueState, process_executor
from dlc.runtime.requests.future import Future, futures_in

# The default bound of a queue.
_MAX_PENDING_CALLS = 1024
# By default, `map` submits this many calls per stream.
_CALLS_PER_STREAM = 2


class RequestQueue:
    """Submits calls of a function, such as a model, to the executor of the process.

    A model's own queue is `model.requests`. Another queue of the same model has another bound, priority or number of streams.

    Args:
        function: Computes the result of a call. It is called in a thread of the executor.
        num_threads: The number of threads that a call uses.
        streams: The maximum number of calls that run at once.
        max_pending: The maximum number of calls that have not started; `submit` waits for space.
        priority: The priority of calls that do not specify one; calls with larger numbers start first, across all queues.
        cpus: The processors on which calls run; by default those of the process.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        num_threads: int = 1,
        streams: int = 1,
        max_pending: int = _MAX_PENDING_CALLS,
        priority: int = 0,
        cpus: Iterable[int] | None = None,
        executor: Executor | None = None,
    ) -> None:
        if not callable(function):
            raise ArgumentError(f"RequestQueue: function is a {type(function).__name__}; expected a model or another callable")
        for argument, value in (("num_threads", num_threads), ("streams", streams), ("max_pending", max_pending)):
            if not is_count(value):
                raise ArgumentError(f"RequestQueue: {argument} = {value!r}; expected an integer >= 1")
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self.priority, _ = checked_schedule("RequestQueue", priority, None)
        self._executor = executor
        self._state = QueueState(
            function, self.name, num_threads, streams, max_pending, None if cpus is None else processors(cpus)
        )

    def of_function(self, function: Callable[..., Any], max_pending: int | None = None) -> RequestQueue:
        """Return a queue with the settings of this one for a function that calls this one's function."""
        state = self._state
        return RequestQueue(
            function,
            name=self.name,
            num_threads=state.threads,
            streams=state.streams,
            max_pending=state.max_pending if max_pending is None else max_pending,
            priority=self.priority,
            cpus=state.cpus,
            executor=self._executor,
        )

    @property
    def executor(self) -> Executor:
        """The executor that runs the calls; by default that of the process."""
        return self._executor or process_executor()

    @property
    def streams(self) -> int:
        """The maximum number of calls that run at once."""
        return self._state.streams

    @property
    def max_pending(self) -> int:
        """The maximum number of calls that have not started."""
        return self._state.max_pending

    @property
    def pending(self) -> int:
        """The number of calls that have not started."""
        return self._state.pending

    @property
    def running(self) -> int:
        """The number of calls that are running."""
        return self._state.running

    def submit(self, /, *arguments: Any, priority: int | None = None, deadline: float | None = None, **named: Any) -> Future:
        """Submit a call and return its future; wait while the queue is full.

        Arguments may be futures, of this or another queue: the call starts when they are done, with their results. Arrays must
        not be modified before the call has ended. Errors of the call, and of futures among its arguments, are raised where the
        result is read.

        Args:
            priority: Calls with larger numbers start first; by default the priority of the queue.
            deadline: Seconds from now. A call that has not started by then does not run; its future raises DeadlineError.

        Raises QueueFullError if the queue is full and this is a callback of a future, which does not wait, and ArgumentError
        for an invalid priority or deadline.
        """
        return self.executor.submit(
            self._state,
            arguments,
            named,
            futures_in((*arguments, *named.values())),
            self.priority if priority is None else priority,
            deadline,
        )

    def map(self, feeds: Iterable[Any], *, in_flight: int | None = None) -> Generator[Any]:
        """Yield the results of calls with one argument each, in order; at most `in_flight` of them are submitted at a time.

        By default, `in_flight` is twice the number of streams. `feeds` is read as results are consumed, so that it may be
        endless. The exception of a call is raised in place of its result. Closing the generator cancels the calls that have not
        started.
        """
        return results_in_order(self.submit, feeds, self.default_in_flight if in_flight is None else in_flight)

    @property
    def default_in_flight(self) -> int:
        """The default of `in_flight`: one call runs while the next one waits."""
        return _CALLS_PER_STREAM * self.streams


def results_in_order(submit: Callable[[Any], Future], feeds: object, in_flight: int) -> Generator[Any]:
    """Yield the results of submitted feeds in order; at most `in_flight` of them are submitted at a time."""
    if not is_count(in_flight):
        raise ArgumentError(f"map: in_flight = {in_flight!r}; expected an integer >= 1")
    if isinstance(feeds, Mapping) or not isinstance(feeds, Iterable):
        kind = type(cast("object", feeds)).__name__
        raise ArgumentError(f"map: feeds is a {kind}; expected an iterable of arguments, one for each call")
    return _results(submit, iter(cast("Iterable[Any]", feeds)), in_flight)


def _results(submit: Callable[[Any], Future], feeds: Iterable[Any], in_flight: int) -> Generator[Any]:
    futures = deque[Future]()
    try:
        for feed in feeds:
            futures.append(submit(feed))
            if len(futures) == in_flight:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        for future in futures:
            future.cancel()

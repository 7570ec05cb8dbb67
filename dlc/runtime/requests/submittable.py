"""The methods of models and compiled functions for asynchronous calls."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Generator, Iterable
from functools import cached_property
from typing import Any

from dlc.runtime.requests.future import Future
from dlc.runtime.requests.request_queue import RequestQueue, results_in_order

# functools.cached_property holds no lock since Python 3.12: without one, two threads could create two queues of a model.
_QUEUE_CREATION = threading.RLock()


class Submittable:
    """A callable whose calls can be submitted to a queue."""

    @cached_property
    def requests(self) -> RequestQueue:
        """The queue of submitted calls."""
        with _QUEUE_CREATION:
            if "requests" not in self.__dict__:
                self.__dict__["requests"] = self._new_queue()
        return self.__dict__["requests"]

    @abstractmethod
    def _new_queue(self) -> RequestQueue: ...

    def submit(self, /, *arguments: Any, priority: int = 0, deadline: float | None = None, **named: Any) -> Future:
        """Submit a call and return its future: `model.submit({"x": x})`, `function.submit(x, y)`.

        Arguments may be futures, also inside tuples, lists and dicts: `other.submit({"x": future["y"]})` starts when that
        output is computed. Arrays must not be modified before the call has ended. Errors are raised where the result is read.

        Args:
            priority: Calls with larger numbers start first.
            deadline: Seconds from now. A call that has not started by then does not run; its future raises DeadlineError.
        """
        return self.requests.submit(*arguments, priority=priority, deadline=deadline, **named)

    def map(self, feeds: Iterable[Any], *, in_flight: int | None = None) -> Generator[Any]:
        """Yield the results of calls with one argument each, in order, with up to `in_flight` calls submitted at a time.

        By default, `in_flight` is twice the number of streams. `feeds` is read as results are consumed. Closing the generator
        cancels the calls that have not started.
        """
        return results_in_order(self.submit, feeds, self._default_in_flight if in_flight is None else in_flight)

    @property
    def num_pending(self) -> int:
        """The number of submitted calls that have not started."""
        return self.requests.pending

    @property
    def max_pending(self) -> int:
        """The bound of `num_pending`, at which `submit` waits."""
        return self.requests.max_pending

    @property
    def _default_in_flight(self) -> int:
        return self.requests.default_in_flight

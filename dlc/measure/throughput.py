"""Measure the throughput of a queue of requests, and the latency at that throughput."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future as BaseFuture
from dataclasses import dataclass
from time import perf_counter
from typing import Any

# The fraction of the time that is not counted: threads start and caches fill.
_WARM_UP_FRACTION = 0.2


@dataclass(frozen=True)
class Throughput:
    """The latencies of requests in seconds, ascending, and the requests per second."""

    latencies: tuple[float, ...]
    requests_per_second: float

    def percentile(self, percent: int) -> float:
        """Return a percentile of the latencies."""
        return self.latencies[min(len(self.latencies) - 1, len(self.latencies) * percent // 100)]


def measure_throughput(submit: Callable[[], BaseFuture[Any]], in_flight: int, seconds: float) -> Throughput:
    """Keep `in_flight` requests submitted for about `seconds`.

    A request's latency is the time from its submission to its result, including its time in the queue. Raises what a request
    raises.
    """
    places, lock, errors = threading.Semaphore(in_flight), threading.Lock(), list[BaseException]()
    begin = perf_counter()
    first, end = begin + _WARM_UP_FRACTION * seconds, begin + seconds
    ends, latencies = list[float](), list[float]()

    def record(start: float, done: BaseFuture[Any]) -> None:
        now, error = perf_counter(), done.exception(timeout=0)
        with lock:
            if error is not None:
                errors.append(error)
            elif now >= first:
                ends.append(now)
                latencies.append(now - start)
        places.release()

    while (perf_counter() < end or not latencies) and not errors:
        places.acquire()
        start = perf_counter()
        submit().add_done_callback(lambda done, start=start: record(start, done))
    for _ in range(in_flight):
        places.acquire()
    if errors:
        raise errors[0]
    return Throughput(tuple(sorted(latencies)), len(ends) / (max(ends) - first))

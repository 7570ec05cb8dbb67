"""The executor under every schedule of small programs: no request is lost, run twice, or run after it was cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

import pytest

from dlc.errors import DeadlineError
from dlc.runtime.requests.executor import Executor
from dlc.runtime.requests.future import Future
from dlc.runtime.requests.request_queue import RequestQueue
from tests.runtime.requests.interleavings import DeadlockError, Schedule, explore


def executor(schedule: Schedule, capacity: int) -> Executor:
    return Executor(lambda: capacity, schedule.lock, schedule.start, lambda: schedule.time)


class Calls:
    """Records the calls of a function and the largest number of concurrent ones."""

    def __init__(self, schedule: Schedule) -> None:
        self.lock, self.calls, self.running, self.max_running = schedule.lock(), list[int](), 0, 0

    def __call__(self, x: int) -> int:
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        with self.lock:
            self.calls.append(x)
        self.running -= 1
        return 10 * x


@pytest.mark.parametrize(("capacity", "max_preemptions", "min_schedules"), [(1, 2, 500), (2, 1, 500)])
def test_all_requests_run_once(capacity: int, max_preemptions: int, min_schedules: int) -> None:
    def program(schedule: Schedule) -> Callable[[], None]:
        calls, futures = Calls(schedule), dict[int, Future]()
        queue = RequestQueue(calls, streams=2, max_pending=1, executor=executor(schedule, capacity))

        def client(first: int) -> None:
            for x in (first, first + 1):
                futures[x] = queue.submit(x)

        schedule.start(lambda: client(1))
        schedule.start(lambda: client(3))

        def check() -> None:
            assert {x: future.result(0) for x, future in futures.items()} == {1: 10, 2: 20, 3: 30, 4: 40}
            assert sorted(calls.calls) == [1, 2, 3, 4] and calls.max_running <= capacity
            assert queue.pending == queue.running == 0

        return check

    assert explore(program, max_preemptions) > min_schedules


def test_cancelled_requests_do_not_run() -> None:
    outcomes = set[bool]()

    def program(schedule: Schedule) -> Callable[[], None]:
        calls, cancelled = Calls(schedule), dict[int, bool]()
        queue = RequestQueue(calls, max_pending=2, executor=executor(schedule, 1))
        futures = [queue.submit(0)]

        def client() -> None:
            futures.append(queue.submit(1))
            futures.append(queue.submit(2))
            cancelled[1] = futures[1].cancel()
            assert futures[1].cancelled() == cancelled[1]

        schedule.start(client)

        def check() -> None:
            outcomes.add(cancelled[1])
            assert sorted(calls.calls) == ([0, 2] if cancelled[1] else [0, 1, 2])
            if cancelled[1]:
                with pytest.raises(CancelledError):
                    futures[1].result(0)
            assert futures[2].result(0) == 20 and queue.pending == queue.running == 0

        return check

    explore(program, max_preemptions=3)
    assert outcomes == {False, True}


def test_deadlines_end_requests_once() -> None:
    outcomes = set[bool]()

    def program(schedule: Schedule) -> Callable[[], None]:
        calls, futures = Calls(schedule), list[Future]()
        queue = RequestQueue(calls, max_pending=1, executor=executor(schedule, 1))

        def client() -> None:
            futures.append(queue.submit(1))
            futures.append(queue.submit(2, deadline=1.0))
            futures.append(queue.submit(3, deadline=2.0))

        schedule.start(client)

        def check() -> None:
            for x, future in enumerate(futures, 1):
                error = future.exception(0)
                assert error is None if x in calls.calls else isinstance(error, DeadlineError)
                outcomes.add(error is None)
            assert len(calls.calls) == len(set(calls.calls)) and queue.pending == queue.running == 0

        return check

    explore(program, max_preemptions=2)
    assert outcomes == {False, True}


def test_futures_are_arguments() -> None:
    def program(schedule: Schedule) -> Callable[[], None]:
        run, calls = executor(schedule, 2), Calls(schedule)
        first, second = (RequestQueue(calls, executor=run) for _ in range(2))
        results = list[Future]()

        def client() -> None:
            x = first.submit(1)
            results.append(second.submit(x))
            results.append(first.submit(results[0]))

        schedule.start(client)

        def check() -> None:
            assert [future.result(0) for future in results] == [100, 1000] and calls.calls == [1, 10, 100]

        return check

    explore(program, max_preemptions=3)


def test_explorer_finds_a_lost_wake_up() -> None:
    """The explorer finds the schedule in which a thread checks a flag, and then waits for an event that has passed."""

    def program(schedule: Schedule) -> Callable[[], None]:
        lock, event, flag = schedule.lock(), schedule.lock(), threading.Event()
        event.acquire()

        def waiter() -> None:
            with lock:
                is_set = flag.is_set()
            if not is_set:
                event.acquire()

        def setter() -> None:
            # The setter must not skip the event when nobody seems to wait.
            with lock:
                flag.set()

        schedule.start(waiter)
        schedule.start(setter)
        return lambda: None

    with pytest.raises(AssertionError) as raised:
        explore(program, max_preemptions=1)
    assert isinstance(raised.value.__cause__, DeadlockError)

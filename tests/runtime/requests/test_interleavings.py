"""The executor and batching under every schedule of small programs: no request is lost, run twice, or run after it was cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.errors import DeadlineError
from dlc.runtime.models.model import Model
from dlc.runtime.requests.batched_model import BatchedModel
from dlc.runtime.requests.executor import Executor
from dlc.runtime.requests.future import Future
from dlc.runtime.requests.request_queue import RequestQueue
from dlc.runtime.requests.threading_primitives import Threading
from dlc.shapes.dims import Dim
from tests.runtime.requests.interleavings import DeadlockError, Schedule, explore


def executor(schedule: Schedule, capacity: int) -> Executor:
    return Executor(lambda: capacity, Threading(schedule.lock, schedule.start, lambda: schedule.time))


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


class Rows:
    """A model y = 10·x on rows, which records them, and requests of one row."""

    def __init__(self, schedule: Schedule, max_batch: int, max_delay: float, max_pending: int) -> None:
        infos = [TensorInfo(name, (Dim.symbol("N"), 1), np.dtype(np.float32)) for name in ("x", "y")]
        model, self.rows, self.futures = Model(infos[:1], infos[1:], self._run, "rows"), list[int](), dict[int, Future]()
        model.__dict__["requests"] = RequestQueue(model, executor=executor(schedule, 1))
        self.batched = BatchedModel(model, max_batch, max_delay, max_pending)

    def _run(self, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        self.rows += map(int, arrays[0][:, 0])
        return [10 * arrays[0]]

    def submit(self, x: int, deadline: float | None = None) -> None:
        self.futures[x] = self.batched.submit(np.full((1, 1), x, np.float32), deadline=deadline)

    def check(self) -> None:
        """Require that each request has its own result, or an error if it did not run, and that none is left."""
        for x, future in self.futures.items():
            assert (x in self.rows) == (not future.cancelled() and future.exception(0) is None)
            if x in self.rows:
                assert future.result(0)["y"] == 10 * x
        assert len(self.rows) == len(set(self.rows))
        state = self.batched.requests
        assert (self.batched.num_pending, self.batched._groups, state.pending, state.running) == (0, {}, 0, 0)


def test_batches_have_each_request_once() -> None:
    def program(schedule: Schedule) -> Callable[[], None]:
        rows = Rows(schedule, 2, 0, max_pending=2)
        for first in (1, 3):
            schedule.start(lambda first=first: [rows.submit(x) for x in (first, first + 1)])

        def check() -> None:
            rows.check()
            assert sorted(rows.rows) == [1, 2, 3, 4]

        return check

    assert explore(program, max_preemptions=1) > 100


@pytest.mark.parametrize("max_delay", [0.0, 1.0])
def test_cancelled_and_late_requests_leave_batches(max_delay: float) -> None:
    outcomes = set[tuple[int, ...]]()

    def program(schedule: Schedule) -> Callable[[], None]:
        rows = Rows(schedule, 2, max_delay, max_pending=3)

        def client() -> None:
            rows.submit(1, deadline=0.5)
            rows.submit(2)
            rows.futures[2].cancel()
            rows.submit(3)

        schedule.start(client)

        def check() -> None:
            rows.check()
            assert 3 in rows.rows and (2 in rows.rows) != rows.futures[2].cancelled()
            outcomes.add(tuple(sorted(rows.rows)))

        return check

    explore(program, max_preemptions=1)
    assert len(outcomes) >= 3, outcomes


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

"""The executor: runs the requests of all models of the process, on threads that start on demand.

The scheduler is a state machine under one lock; no lock is held while a request runs.

    waiting → queued → running → done     waiting: until the futures among its arguments are done
       └────────┴──────→ withdrawn        cancelled, past its deadline, or one of the futures failed

A request occupies as many processors as its model has threads. The next one to start is that with the highest priority; among
equal priorities, that of the queue which has used the least processor time: start-time fair queueing (Goyal et al. 1996), where
a queue that was idle starts at the virtual time of the others, so that it cannot save up time. If the request does not fit,
nothing overtakes it: small requests cannot starve large ones.
"""

from __future__ import annotations

import threading
from atexit import register as register_at_exit
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future as BaseFuture
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from dlc.errors import DeadlineError, DeviceError, QueueFullError
from dlc.machine.cpus import running_on, usable_cpus
from dlc.runtime.requests.deadlines import Deadlines, checked_schedule
from dlc.runtime.requests.future import Future, error_of, waiting, with_results
from dlc.runtime.requests.threading_primitives import IDLE_SECONDS, SYSTEM_THREADING, Gate, Threading, reset_in_child

# The number of usable processors is read again after this time: the quota of a container can change.
_CAPACITY_SECONDS = 1.0
# The share of the last request in the average processor time of a queue's requests.
_LAST_FRACTION = 0.25
# Ended requests are removed from a queue's heap when it has more than this number of entries plus twice the pending ones.
_MIN_HEAP_ENTRIES = 64
# States of requests that have not started.
_NOT_STARTED = ("waiting", "queued")


class Request(Future):
    """A submitted call, which is its own future. The public fields belong to the executor."""

    def __init__(
        self,
        queue: QueueState,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        order: tuple[int, int],
        deadline: float | None,
        executor: Executor,
    ) -> None:
        super().__init__()
        self.queue, self._executor = queue, executor
        self.arguments, self.named = arguments, named
        # The negated priority, then the number of the submission.
        self.order = order
        self.deadline = deadline
        self.state = "waiting"
        # Whether futures are among the arguments, and the number of those that are not done.
        self.has_futures, self.missing = False, 0
        # Processors that it occupies while it runs.
        self.threads = 0
        self.context: Context | None = copy_context()

    def withdraw(self) -> bool:
        return self._executor.withdraw(self)

    def __lt__(self, other: Request) -> bool:
        return self.order < other.order

    def release(self, state: str) -> None:
        """Release the arguments, which the future must not keep alive."""
        self.state = state
        self.arguments, self.named, self.context = (), {}, None


class QueueState:
    """The part of a request queue that belongs to the executor.

    Attributes:
        run: Runs a request, with the arguments of its submission.
        threads: Processors that a request occupies.
        streams: The maximum number of requests that run at once.
        max_pending: The maximum number of requests that have not started.
        cpus: The processors on which requests run; None: those of the process.
        pending: Requests that have not started.
        used: Virtual time: the processor time of its requests so far, or more.
        average: The average processor time of its requests.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        name: str,
        threads: int,
        streams: int,
        max_pending: int,
        cpus: frozenset[int] | None = None,
    ) -> None:
        self.run, self.name, self.threads, self.streams, self.max_pending = run, name, threads, streams, max_pending
        self.cpus = cpus
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all requests."""
        self.heap: list[Request] = []
        self.pending = self.running = 0
        self.used = self.average = 0.0
        self.blocked: list[Gate] = []

    def add(self, request: Request) -> None:
        """Add a queued request. Remove ended ones if they accumulate in the heap."""
        if len(self.heap) > _MIN_HEAP_ENTRIES + 2 * self.pending:
            self.heap = [entry for entry in self.heap if entry.state == "queued"]
            heapify(self.heap)
        heappush(self.heap, request)

    def first(self) -> Request | None:
        """Return the queued request that starts next; None if there is none."""
        while self.heap and self.heap[0].state != "queued":
            heappop(self.heap)
        return self.heap[0] if self.heap else None


class _Worker:
    """A thread of the executor, which runs the requests that it is assigned."""

    __slots__ = ("gate", "request")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.request: Request | None = None


class _WorkerLocal(threading.local):
    is_worker = False


_local = _WorkerLocal()


def refuse_to_wait(name: str, pending: int) -> None:
    """Raise QueueFullError in a thread that runs requests: it would wait for itself."""
    if _local.is_worker:
        raise QueueFullError(
            f"{name}: {pending} requests have not started, and a callback of a future cannot wait for one to start: "
            "increase max_pending, or submit from another thread"
        )


class Executor:
    """Runs requests on up to `capacity()` processors."""

    def __init__(self, capacity: Callable[[], int] = usable_cpus, threading: Threading = SYSTEM_THREADING) -> None:
        self._read_capacity, self.threading, self._clock = capacity, threading, threading.clock
        self._lock = threading.make_lock()
        self._capacity, self._capacity_time = capacity(), threading.clock()
        self._occupied = 0
        self._active: set[QueueState] = set()
        self._idle: list[_Worker] = []
        self._busy = 0
        self._virtual_time = 0.0
        self._numbers = count()
        self._deadlines = Deadlines[Request](self._lock, threading, self._expire)
        self._drained: Gate | None = None

    def submit(
        self,
        queue: QueueState,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        dependencies: Sequence[BaseFuture[Any]],
        priority: int,
        seconds: float | None,
    ) -> Future:
        """Submit a call, which must start within `seconds`; wait while the queue is full.

        Raises QueueFullError if the queue is full and this thread runs requests: it would wait for itself.
        """
        priority, seconds = checked_schedule(queue.name, priority, seconds)
        if seconds is not None and seconds < 0:
            return late_future(queue.name)
        deadline = None if seconds is None else self._clock() + seconds
        request = Request(queue, arguments, named, (-priority, next(self._numbers)), deadline, self)
        if dependencies:
            # One more, so that the request is not queued before all callbacks are registered.
            request.has_futures, request.missing = True, len(dependencies) + 1
        while True:
            with self._lock:
                if queue.pending < queue.max_pending:
                    failed = self._admit(request)
                    break
                gate = self._block(queue)
            if not self._wait_for_space(queue, gate, deadline):
                return late_future(queue.name)
        if failed:
            _report_no_thread(failed)
        if dependencies:
            for dependency in dependencies:
                dependency.add_done_callback(lambda done: self._resolve(request, error_of(done)))
            self._resolve(request, None)
        return request

    def withdraw(self, request: Request) -> bool:
        """Remove a request that has not started from its queue; return whether it will not run."""
        with self._lock:
            return self._withdraw(request) or request.state == "withdrawn"

    def close(self) -> None:
        """Cancel the requests that have not started, and wait for those that run: called when the interpreter exits."""
        with self._lock:
            withdrawn = [request for queue in self._active for request in queue.heap if self._withdraw(request)]
            drained = self._drained = self.threading.make_gate() if self._busy else None
        for request in withdrawn:
            request.cancel()
        if drained is not None:
            drained.wait()

    def _admit(self, request: Request) -> Sequence[Request]:
        if request.deadline is not None:
            self._deadlines.add(request.deadline, request, lambda r: r.state in _NOT_STARTED)
        request.queue.pending += 1
        return () if request.missing else self._enqueue(request)

    def _block(self, queue: QueueState) -> Gate:
        """Return an event on which this thread waits for space in a full queue."""
        refuse_to_wait(queue.name, queue.pending)
        gate = self.threading.make_gate()
        queue.blocked.append(gate)
        return gate

    def _wait_for_space(self, queue: QueueState, gate: Gate, deadline: float | None) -> bool:
        """Wait for space in the queue; return False if the deadline passes first."""
        if gate.wait(None if deadline is None else deadline - self._clock()):
            return True
        with self._lock:
            if gate in queue.blocked:
                queue.blocked.remove(gate)
                return False
        # The event was set after the timeout.
        return True

    def _leave(self, queue: QueueState) -> None:
        """Release the space of a request in the queue, and wake a thread that waits for it."""
        queue.pending -= 1
        if queue.blocked:
            queue.blocked.pop(0).open()

    def _resolve(self, request: Request, error: BaseException | None) -> None:
        """Record that a future among the arguments is done."""
        with self._lock:
            if request.state != "waiting":
                return
            request.missing -= 1
            failed = self._enqueue(request) if request.missing == 0 and error is None else ()
            is_withdrawn = error is not None and self._withdraw(request)
        if failed:
            _report_no_thread(failed)
        if is_withdrawn and request.set_running_or_notify_cancel():
            request.set_exception(error)

    def _withdraw(self, request: Request) -> bool:
        """Remove a request from its queue; return False for one that has started or ended."""
        if request.state not in _NOT_STARTED:
            return False
        self._end_wait(request)
        request.release("withdrawn")
        return True

    def _expire(self, request: Request) -> Callable[[], None] | None:
        return partial(_report_expiry, request) if self._withdraw(request) else None

    def _end_wait(self, request: Request) -> None:
        self._leave(request.queue)
        if request.deadline is not None:
            self._deadlines.num_live -= 1

    def _enqueue(self, request: Request) -> Sequence[Request]:
        queue = request.queue
        request.state = "queued"
        if queue.running == 0 and queue.first() is None:
            queue.used = max(queue.used, self._virtual_time)
        queue.add(request)
        self._active.add(queue)
        return self._dispatch()

    def _dispatch(self) -> Sequence[Request]:
        """Start requests while processors are free; return those for which the system cannot create a thread."""
        failed: list[Request] = []
        while (request := self._take()) is not None:
            self._busy += 1
            if self._idle:
                worker = self._idle.pop()
                worker.request = request
                worker.gate.open()
                continue
            worker = _Worker(self.threading.make_gate())
            worker.request = request
            worker.gate.open()
            try:
                self.threading.start_thread(lambda worker=worker: self._work(worker), "dlc-requests")
            except RuntimeError:
                self._busy -= 1
                failed.append(request)
                self._release(request, 0.0)
        return failed

    def _take(self) -> Request | None:
        """Remove and return the next request if enough processors are free; else None."""
        if self._occupied >= self._capacity:
            return None
        best: tuple[tuple[int, float, int], Request] | None = None
        for queue in [*self._active]:
            request = queue.first()
            if request is None:
                self._active.remove(queue)
            elif queue.running < queue.streams:
                rank = (request.order[0], queue.used, request.order[1])
                if best is None or rank < best[0]:
                    best = rank, request
        if best is None:
            return None
        request, queue = best[1], best[1].queue
        threads = min(queue.threads, self._capacity)
        if self._occupied + threads > self._capacity:
            return None
        heappop(queue.heap)
        self._end_wait(request)
        request.state, request.threads = "running", threads
        self._occupied += threads
        queue.running += 1
        self._virtual_time = max(self._virtual_time, queue.used)
        # Charged in advance, and corrected when the request ends.
        queue.used += queue.average
        return request

    def _release(self, request: Request, seconds: float) -> None:
        """Release the processors of a request that has ended, and record its time."""
        queue, used = request.queue, seconds * request.threads
        queue.running -= 1
        queue.used += used - queue.average
        queue.average += _LAST_FRACTION * (used - queue.average) * (1 if queue.average else 1 / _LAST_FRACTION)
        self._occupied -= request.threads
        request.release("done")

    def _work(self, worker: _Worker) -> None:
        """Run the requests that are assigned to a worker; exit after `IDLE_SECONDS` without one."""
        _local.is_worker = True
        waiting.section = partial(self._release_processors, worker)
        while True:
            if not worker.gate.wait(IDLE_SECONDS):
                with self._lock:
                    if worker in self._idle:
                        self._idle.remove(worker)
                        return
                continue
            request = worker.request
            assert request is not None
            start = self._clock()
            self._run(request)
            end = self._clock()
            self._refresh_capacity(end)
            with self._lock:
                self._release(request, end - start)
                # Its arguments and result must not stay alive while the thread is idle.
                worker.request = request = None
                self._busy -= 1
                self._idle.append(worker)
                failed = self._dispatch()
                if self._drained is not None and self._busy == 0:
                    self._drained.open()
                    self._drained = None
            if failed:
                _report_no_thread(failed)

    @contextmanager
    def _release_processors(self, worker: _Worker) -> Generator[None]:
        """Release the processors of a request while its function, or a callback of its future, waits for another request.

        Afterwards, the request continues at once, even if other requests occupy all processors.
        """
        request = worker.request
        assert request is not None
        with self._lock:
            self._occupied -= request.threads
            request.queue.running -= 1
            failed = self._dispatch()
        if failed:
            _report_no_thread(failed)
        try:
            yield
        finally:
            with self._lock:
                self._occupied += request.threads
                request.queue.running += 1

    @staticmethod
    def _run(request: Request) -> None:
        """Run a request and set its result; callbacks of the future run here."""
        assert request.context is not None
        request.set_running_or_notify_cancel()
        try:
            resolve: Callable[[Any], Any] = with_results if request.has_futures else _unchanged
            run = partial(request.context.run, request.queue.run, *resolve(request.arguments), **resolve(request.named))
            if request.queue.cpus is None:
                result = run()
            else:
                with running_on(request.queue.cpus):
                    result = run()
        except BaseException as error:
            request.set_exception(error)
            # The traceback refers to this frame: without the request in it, there is no reference cycle.
            del request
        else:
            request.set_result(result)

    def _refresh_capacity(self, now: float) -> None:
        if now - self._capacity_time < _CAPACITY_SECONDS:
            return
        self._capacity_time = now
        # The affinity of this thread is that of the thread that started it.
        self._capacity = self._read_capacity()


def _unchanged(arguments: Any) -> Any:
    return arguments


def _report_no_thread(failed: Sequence[Request]) -> None:
    for request in failed:
        request.set_exception(DeviceError("the system cannot start a thread for a request; use fewer streams"))


def _report_expiry(request: Request) -> None:
    if request.set_running_or_notify_cancel():
        request.set_exception(deadline_error(request.queue.name))


def late_future(name: str) -> Future:
    """Return the future of a request to a queue or model whose deadline has passed before it was admitted."""
    future = Future()
    future.set_exception(deadline_error(name))
    return future


def deadline_error(name: str) -> DeadlineError:
    """Return the error of a request to a queue or model that did not start in time."""
    return DeadlineError(
        f"{name}: the request did not start before its deadline; submit fewer requests, or set a later deadline"
    )


class _ProcessExecutor:
    """The executor of this process, created when it is first used."""

    def __init__(self) -> None:
        self.reset()
        reset_in_child(self)

    def get(self) -> Executor:
        with self._lock:
            if self._executor is None:
                self._executor = Executor()
                register_at_exit(self._executor.close)
            return self._executor

    def reset(self) -> None:
        """Forget the executor, whose threads a forked child does not have."""
        self._lock = threading.Lock()
        self._executor: Executor | None = None


_process_executor = _ProcessExecutor()


def process_executor() -> Executor:
    """Return the executor of this process."""
    return _process_executor.get()

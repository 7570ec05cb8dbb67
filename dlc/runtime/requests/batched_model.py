"""Dynamic batching: join concurrent requests along the batch dimension of a model, and split the results.

    requests   x: 1 row    x: 3 rows    x: 1 row
    one call   x: 5 rows  →  y: 5 rows
    results    y: 1 row    y: 3 rows    y: 1 row

Requests wait in a group for each combination of sizes other than the batch size. When a call starts, it takes as many requests
of a group as fit: under load, the requests that arrive while a call runs form the next batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future as BaseFuture
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlc.arrays import TensorInfo
from dlc.errors import ArgumentError, DeviceError, ShapeError, UnsupportedError
from dlc.runtime.models.model import Model, as_result
from dlc.runtime.requests.deadlines import Deadlines, checked_schedule
from dlc.runtime.requests.executor import deadline_error, late_future, refuse_to_wait
from dlc.runtime.requests.future import Future, error_of, futures_in, with_results
from dlc.runtime.requests.request_queue import RequestQueue
from dlc.runtime.requests.submittable import Submittable
from dlc.runtime.requests.threading_primitives import Gate, reset_in_child
from dlc.shapes.dims import Dim, is_symbol

# The default bound on requests that have not started.
_MAX_PENDING_CALLS = 1024


class _BatchedRequest(Future):
    """A request, which is its own future; it has no arrays when it has ended."""

    def __init__(self, model: BatchedModel, priority: int, deadline: float | None) -> None:
        super().__init__()
        self._model = model
        self.priority, self.deadline = priority, deadline
        self.arrays: list[Any] = []
        self.rows = 0
        # None before and after the request waits in a group.
        self.group: _Group | None = None
        # "waiting", then "running", or "withdrawn" if it is cancelled, past its deadline, or has invalid arguments.
        self.state = "waiting"

    def withdraw(self) -> bool:
        return self._model.withdraw(self)


@dataclass(eq=False)
class _Group:
    """Requests that may share a call, in the order of their arrival, and the calls that were submitted for them.

    A model has a group, under its key, while requests wait in it or a call of it has not started.
    """

    key: Hashable
    waiting: deque[_BatchedRequest] = field(default_factory=deque[_BatchedRequest])
    rows: int = 0
    calls: int = 0


class BatchedModel(Submittable):
    """A model that joins concurrent requests (see `dlc.batched`). Its calls and submissions are those of the model."""

    def __init__(self, model: Model, max_batch: int, max_delay: float, max_pending: int) -> None:
        self.model, self.name, self.inputs, self.outputs = model, model.name, model.inputs, model.outputs
        self.max_batch, self._max_delay = max_batch, max_delay
        self._symbol = _batch_symbol(model)
        self._max_pending = max_pending
        # Each call that has not started includes at least one pending request, so that the queue is never full.
        self._calls = model.requests.of_function(self._run_batch, max_pending=max_pending + 1)
        # The number of batches so far, by their number of requests.
        self.batch_sizes: dict[int, int] = {}
        self._threading = self._calls.executor.threading
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget all requests."""
        self._lock = self._threading.make_lock()
        self._delays = Deadlines[_BatchedRequest](self._lock, self._threading, self._end_delay)
        self._deadlines = Deadlines[_BatchedRequest](self._lock, self._threading, self._expire)
        self._groups: dict[Hashable, _Group] = {}
        self._num_pending = 0
        # Threads that wait for space in the queue.
        self._blocked = deque[Gate]()

    def __call__(self, /, *arguments: Any, **named: Any) -> dict[str, Any]:
        """Return the outputs for these inputs, computed in one batch with concurrent requests."""
        return self.submit(*arguments, **named).result()

    def _new_queue(self) -> RequestQueue:
        return self._calls

    @property
    def num_pending(self) -> int:
        """The number of requests that have not ended."""
        return self._num_pending

    @property
    def max_pending(self) -> int:
        return self._max_pending

    def _enter(self, deadline: float | None) -> bool:
        """Reserve a slot of the queue, and wait for one while it is full; return False if the deadline passes first."""
        with self._lock:
            if self._num_pending < self._max_pending:
                self._num_pending += 1
                return True
            refuse_to_wait(self.name, self._num_pending)
            gate = self._threading.make_gate()
            self._blocked.append(gate)
        if gate.wait(deadline):
            return True
        with self._lock:
            # Otherwise the slot was assigned after the timeout.
            is_late = gate in self._blocked
            if is_late:
                self._blocked.remove(gate)
        return not is_late

    def _leave_queue(self, count: int = 1) -> None:
        """Give the slots of `count` requests that have ended to threads that wait; called under the lock."""
        for _ in range(count):
            if self._blocked:
                self._blocked.popleft().open()
            else:
                self._num_pending -= 1

    @property
    def _default_in_flight(self) -> int:
        return self._calls.default_in_flight * self.max_batch

    def submit(self, /, *arguments: Any, priority: int = 0, deadline: float | None = None, **named: Any) -> Future:
        priority, deadline = checked_schedule(self.name, priority, deadline)
        until = None if deadline is None else self._threading.clock() + deadline
        if (deadline is not None and deadline < 0) or not self._enter(deadline):
            return late_future(self.name)
        request = _BatchedRequest(self, priority, until)
        dependencies = futures_in((*arguments, *named.values()))
        try:
            if dependencies:
                self._join_when_done(request, dependencies, arguments, named)
            else:
                self._join(request, arguments, named)
            return request
        finally:
            # The traceback of an error in the arguments refers to this frame: without the request, there is no reference cycle.
            del request

    def _join_when_done(
        self,
        request: _BatchedRequest,
        dependencies: Sequence[BaseFuture[Any]],
        arguments: Sequence[Any],
        named: Mapping[str, Any],
    ) -> None:
        """Join a request when the futures among its arguments are done, or fail it with the first that fails."""
        missing = [len(dependencies)]

        def resolve(done: BaseFuture[Any]) -> None:
            error = error_of(done)
            with self._lock:
                if not missing[0]:
                    return
                missing[0] = missing[0] - 1 if error is None else 0
                is_resolved = not missing[0]
            if error is not None:
                self._fail(request, error)
            elif is_resolved:
                self._join(request, arguments, named, has_futures=True)

        for dependency in dependencies:
            dependency.add_done_callback(resolve)

    def _join(
        self, request: _BatchedRequest, arguments: Sequence[Any], named: Mapping[str, Any], *, has_futures: bool = False
    ) -> None:
        """Add a request whose arguments are known to its group."""
        try:
            if has_futures:
                arguments, named = with_results(arguments), with_results(named)
            request.arrays = self.model.checked(*arguments, **named)
            request.rows = request.arrays[0].shape[0]
            if request.rows > self.max_batch:
                raise ShapeError(
                    f"{self.name}: a request of {request.rows} rows; expected at most max_batch = {self.max_batch}"
                )
        except BaseException as error:
            self._fail(request, error)
            # The traceback refers to this frame: without the request in it, there is no reference cycle.
            del request
            return
        try:
            with self._lock:
                if request.state != "waiting":
                    return
                group, starts = self._admit(request)
        except DeviceError as error:
            self._fail(request, error)
            return
        if starts:
            self._start(group, request.priority)

    def _admit(self, request: _BatchedRequest) -> tuple[_Group, bool]:
        """Add a request to its group; return the group, and whether to start a call; called under the lock.

        Raises DeviceError, before the request is added, if the system cannot start a thread that watches times.
        """
        key = tuple([array.shape[1:] for array in request.arrays])
        group = self._groups.get(key) or _Group(key)
        # A submitted call that has not started includes this request, unless its batch is full.
        is_full = group.rows + request.rows >= self.max_batch * (group.calls + 1)
        starts = is_full or not (self._max_delay or group.calls)
        if self._max_delay and not starts:
            self._delays.add(self._threading.clock() + self._max_delay, request, _is_waiting)
        if request.deadline is not None:
            self._deadlines.add(request.deadline, request, _is_waiting)
        self._groups[key] = request.group = group
        group.waiting.append(request)
        group.rows += request.rows
        group.calls += starts
        return group, starts

    def _start(self, group: _Group, priority: int) -> None:
        self._calls.submit(group, priority=priority)

    def _end_delay(self, request: _BatchedRequest) -> Callable[[], None] | None:
        """Start a call for a request that has waited long enough; called under the lock."""
        self._delays.num_live -= 1
        group = request.group
        if group is None or group.calls:
            # It has run, or the next call includes it.
            return None
        group.calls += 1
        return lambda: self._start(group, request.priority)

    def _expire(self, request: _BatchedRequest) -> Callable[[], None] | None:
        if not self._leave(request):
            return None

        return lambda: self._fail(request, deadline_error(self.name))

    def withdraw(self, request: _BatchedRequest) -> bool:
        """Remove a request that has not started; return whether it will not run."""
        with self._lock:
            if request.state == "waiting":
                self._leave(request)
                self._end_wait(request)
            return request.state == "withdrawn"

    def _fail(self, request: _BatchedRequest, error: BaseException) -> None:
        """End a request that has not started."""
        with self._lock:
            if request.state != "waiting":
                return
            self._end_wait(request)
        if request.set_running_or_notify_cancel():
            request.set_exception(error)

    def _end_wait(self, request: _BatchedRequest) -> None:
        """Release the arrays and the slot of a request that will not run; called under the lock."""
        request.state, request.arrays = "withdrawn", []
        self._leave_queue()

    def _leave(self, request: _BatchedRequest) -> bool:
        """Remove a request from its group; return False if it is in none."""
        group = request.group
        if group is None:
            return False
        group.waiting.remove(request)
        self._taken(group, request)
        self._remove_if_unused(group)
        return True

    def _remove_if_unused(self, group: _Group) -> None:
        if not (group.waiting or group.calls):
            del self._groups[group.key]

    def _taken(self, group: _Group, request: _BatchedRequest) -> None:
        request.group = None
        group.rows -= request.rows
        if request.deadline is not None:
            self._deadlines.num_live -= 1

    def _run_batch(self, group: _Group) -> None:
        """Run the requests at the front of a group; called in a thread of the executor."""
        batch, rows = list[_BatchedRequest](), 0
        with self._lock:
            group.calls -= 1
            while group.waiting and rows + group.waiting[0].rows <= self.max_batch:
                request = group.waiting.popleft()
                self._taken(group, request)
                request.state = "running"
                batch.append(request)
                rows += request.rows
            continues = bool(group.waiting) and not group.calls
            priority = group.waiting[0].priority if group.waiting else 0
            if continues:
                group.calls += 1
            self._remove_if_unused(group)
            self.batch_sizes[len(batch)] = self.batch_sizes.get(len(batch), 0) + 1
        if continues:
            # Their delay may have expired.
            self._start(group, priority)
        if not batch:
            return
        for request in batch:
            request.set_running_or_notify_cancel()
        results = self._call_model([request.arrays for request in batch])
        if isinstance(results, BaseException) and len(batch) > 1:
            # Only some of the requests may have an error.
            for request in batch:
                self._end([request], self._call_model([request.arrays]))
        else:
            self._end(batch, results)

    def _end(self, batch: Sequence[_BatchedRequest], results: Sequence[dict[str, Any]] | BaseException) -> None:
        """Release the arrays and the slots of requests that have run, and end them with their results, or with an error."""
        for request in batch:
            request.arrays = []
        with self._lock:
            self._leave_queue(len(batch))
        if isinstance(results, BaseException):
            batch[0].set_exception(results)
            return
        for request, result in zip(batch, results, strict=True):
            request.set_result(result)

    def _call_model(self, requests: Sequence[Sequence[Any]]) -> list[dict[str, Any]] | BaseException:
        """Return the results for the arrays of each request, or the error of the call, whose traceback refers to no request."""
        try:
            if len(requests) == 1:
                return [self.model(*requests[0])]
            arrays = [np.concatenate(parts) for parts in zip(*requests, strict=True)]
            outputs = {name: as_result(np.asarray(output)) for name, output in self.model(*arrays).items()}
        except BaseException as error:
            return error
        results, start = list[dict[str, Any]](), 0
        for first, *_ in requests:
            end = start + len(first)
            # Copied: a view would keep the results of the whole batch alive.
            results.append({name: output[start:end].copy() for name, output in outputs.items()})
            start = end
        return results


def batched(
    model: Model, *, max_batch: int = 32, max_delay_ms: float = 1.0, max_pending: int = _MAX_PENDING_CALLS
) -> BatchedModel:
    """Return a model that joins concurrent requests into one call, and splits the results.

    All inputs and outputs must have the same symbolic dimension as axis 0, the batch dimension: compile the model with
    `input_shapes={"x": ("N", …)}`. Requests have one or more rows. Requests with different sizes of other dimensions are not
    joined.

    Args:
        max_batch: The maximum number of rows of a call.
        max_delay_ms: How long a request waits for others, in milliseconds, unless the batch is full. With 0, only requests that
            arrive while a call runs are joined.
        max_pending: The maximum number of requests that have not ended; `submit` waits for space.

    Raises UnsupportedError for a model without a batch dimension.
    """
    for name, value, least in (("max_batch", max_batch, 1), ("max_delay_ms", max_delay_ms, 0), ("max_pending", max_pending, 1)):
        if not value >= least:
            raise ArgumentError(f"dlc.batched: {name} = {value!r}; expected a number >= {least}")
    return BatchedModel(model, max_batch, max_delay_ms / 1e3, max_pending)


def _is_waiting(request: _BatchedRequest) -> bool:
    return request.group is not None


def _batch_symbol(model: Model) -> str:
    """Return the symbol of the batch dimension. Raises UnsupportedError, with all inputs and outputs that have none."""
    first = model.inputs[0].shape[:1] if model.inputs else ()
    symbol = str(first[0]) if first and is_symbol(first[0]) else None
    problems = [f"input {info}" for info in model.inputs if not _is_batched(info, symbol)]
    problems += [f"output {info}" for info in model.outputs if not _is_batched(info, symbol)]
    if symbol is None or problems:
        raise UnsupportedError(
            f"dlc.batched: {model.name}: expected the same symbolic dimension as axis 0 of all inputs and outputs; got "
            f"{', '.join(problems) or 'no inputs'}; compile the model with a symbolic batch size, such as "
            'input_shapes={"x": ("N", …)}',
            problems,
        )
    return symbol


def _is_batched(info: TensorInfo, symbol: str | None) -> bool:
    """Return whether the batch size is the size of axis 0, and of no other axis."""
    sizes = [Dim.lift(size).symbols() for size in info.shape]
    return bool(info.shape) and str(info.shape[0]) == symbol and not any(symbol in symbols for symbols in sizes[1:])

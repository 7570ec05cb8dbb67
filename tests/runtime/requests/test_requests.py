"""Submitted calls: futures, order, bounds, deadlines, and models and functions that are submitted."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, InvalidStateError, ThreadPoolExecutor, as_completed, wait
from concurrent.futures import Future as BaseFuture
from functools import partial
from queue import SimpleQueue
from typing import Any, cast

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.errors import DeadlineError, DeviceError, DlcError, MemoryLimitError, QueueFullError, ShapeError
from dlc.machine.cpus import cpu_affinity
from dlc.runtime.requests.batched_model import BatchedModel
from dlc.runtime.requests.executor import Executor
from dlc.runtime.requests.future import Future
from dlc.runtime.requests.request_queue import RequestQueue
from dlc.runtime.requests.submittable import Submittable
from dlc.runtime.requests.threading_primitives import Threading

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Gated:
    """A function whose first call waits until it is opened; `order` has the arguments of the calls so far."""

    def __init__(self, name: str = "") -> None:
        self.name, self.order, self.started, self.gate = name, list[Any](), threading.Event(), threading.Event()

    def __call__(self, x: Any) -> Any:
        self.order.append(x)
        self.started.set()
        assert self.gate.wait(60)
        return x

    def block(self, queue: RequestQueue) -> BaseFuture[Any]:
        """Make a call that occupies the queue."""
        future = queue.submit("first")
        assert self.started.wait(60)
        return future


@pytest.fixture
def one() -> Iterator[Executor]:
    yield Executor(lambda: 1)


def test_threads_share_the_queue_of_a_model() -> None:
    class Slow(Submittable):
        def _new_queue(self) -> RequestQueue:
            time.sleep(0.01)
            return RequestQueue(abs)

    model = Slow()
    with ThreadPoolExecutor(4) as pool:
        assert len({id(queue) for queue in pool.map(lambda _: model.requests, range(4))}) == 1


def test_results_and_errors_are_those_of_the_call() -> None:
    queue = RequestQueue(lambda x, y=1: x / y)
    assert queue.submit(6, y=3).result(60) == 2
    with pytest.raises(ZeroDivisionError):
        queue.submit(1, y=0).result(60)
    assert {future.result() for future in as_completed([queue.submit(k) for k in range(5)], 60)} == {*range(5)}


def test_futures_are_arguments() -> None:
    queue = RequestQueue(lambda *parts: sum(map(np.sum, parts)))
    first = queue.submit([1, 2], (3,))
    assert queue.submit(first, 4).result(60) == 10
    assert queue.submit([queue.submit(1), queue.submit(2)], {"x": 1}["x"]).result(60) == 4
    failed = queue.submit("text")
    with pytest.raises(TypeError):
        queue.submit(failed).result(60)


def test_parts_of_results() -> None:
    queue = RequestQueue(lambda x: {"double": 2 * x, "half": x / 2})
    whole = queue.submit(6)
    assert RequestQueue(lambda a, b: a + b).submit(whole["double"], whole["half"]).result(60) == 15
    with pytest.raises(KeyError):
        whole["other"].result(60)
    with pytest.raises(TypeError, match="not iterable"):
        iter(whole)


def test_absent_parts_name_the_present_ones() -> None:
    for result, key, message in (
        ({"y": 1, "z": 2}, "x", r"future\['x'\]: the result has no such part; its outputs are y, z"),
        ((1, 2), 2, "it has 2, counted from 0"),
        (np.zeros(3), "x", "it is a ndarray"),
    ):
        whole = Future()
        whole.set_running_or_notify_cancel()
        whole.set_result(result)
        with pytest.raises(dlc.DlcError, match=message):
            whole[key].result()


def test_futures_in_calls_are_refused() -> None:
    x = np.ones(3, np.float32)
    increment = dlc.jit(lambda d: d["x"] + 1)
    with pytest.raises(dlc.DlcError, match=r"argument d\['x'\].*got Request; pass its \.result\(\)"):
        increment({"x": dlc.jit(np.negative).submit(x)})
    np.testing.assert_array_equal(np.asarray(increment.submit({"x": dlc.jit(np.negative).submit(x)}).result()), 1 - x)


def test_errors_without_a_user_line_have_none() -> None:
    """No line of the user runs in the executor's threads."""
    future = dlc.jit(dlc.numpy.add).submit(np.zeros((2, 4)), np.zeros((3, 3)))
    with pytest.raises(dlc.DlcError, match=r"^dl\.add: shapes \(2, 4\) and \(3, 3\) do not broadcast"):
        future.result()


def test_a_cancelled_request_does_not_run(one: Executor) -> None:
    function = Gated()
    queue = RequestQueue(function, executor=one)
    first, second = function.block(queue), queue.submit("second")
    third = queue.submit(second)
    assert not first.cancel() and second.cancel() and second.cancelled() and queue.pending == 0
    function.gate.set()
    with pytest.raises(CancelledError):
        third.result(60)
    assert first.result(60) == "first" and function.order == ["first"]


def test_waits_end_with_the_request(one: Executor) -> None:
    """`wait`, `as_completed`, threads and event loops, for requests that end with a result or are cancelled."""
    function = Gated()
    queue = RequestQueue(function, executor=one)
    first, second = function.block(queue), queue.submit("second")
    with pytest.raises(TimeoutError):
        first.result(0.001)
    assert not wait([first, second], 0.001).done

    async def both() -> list[Any]:
        return await asyncio.gather(first, second, return_exceptions=True)

    with ThreadPoolExecutor(6) as pool:
        threads = [pool.submit(first.result, 60), pool.submit(first.exception, 60), pool.submit(second.exception, 60)]
        loop, completed = pool.submit(asyncio.run, both()), pool.submit(lambda: [*as_completed([first, second], 60)])
        waiter = pool.submit(wait, [first, second], 60)
        time.sleep(0.05)
        assert second.cancel() and second.cancel()
        function.gate.set()
        assert threads[0].result(60) == "first" and threads[1].result(60) is None
        with pytest.raises(CancelledError):
            threads[2].result(60)
        assert loop.result(60)[0] == "first" and isinstance(loop.result(60)[1], asyncio.CancelledError)
        assert {*completed.result(60)} == waiter.result(60).done == {first, second}
    assert not first.cancel() and not first.running() and first.done()
    with pytest.raises(InvalidStateError):
        first.set_result(1)


def test_callbacks_may_wait_and_fail(one: Executor) -> None:
    """A callback runs on the thread of its request, whose processor it releases while it waits for another request."""
    queue = RequestQueue(lambda x: x, executor=one)
    results = SimpleQueue[Any]()

    def wait_for_another(future: BaseFuture[Any]) -> None:
        first, second = (queue.submit(future.result() + k) for k in (1, 2))
        wait([first], 60)
        for done in as_completed([first, second], 60):
            results.put(done.result())

    def fail(future: BaseFuture[Any]) -> None:
        raise SystemExit

    function = Gated()
    function.block(RequestQueue(function, executor=one))
    for callback in (fail, wait_for_another, fail):
        queue.submit(1).add_done_callback(callback)
    function.gate.set()
    assert queue.submit(5).result(60) == 5
    # `as_completed` yields futures that have ended in no defined order.
    assert sorted(results.get(timeout=60) for _ in range(2)) == [2, 3]
    nested = RequestQueue(lambda x: x if x == 0 else nested.submit(x - 1).result(60) + 1, executor=one)
    assert nested.submit(3).result(60) == 3


def test_event_loops_may_close_before_the_result(one: Executor) -> None:
    function = Gated()
    queue = RequestQueue(function, executor=one)
    first = function.block(queue)

    async def abandon() -> None:
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
        await first

    loop = asyncio.new_event_loop()
    task = loop.create_task(abandon())
    loop.run_forever()
    loop.close()
    function.gate.set()
    assert first.result(60) == "first" and not task.done()

    async def again() -> Any:
        return await queue.submit("again")

    assert asyncio.run(again()) == "again"
    # The task of the closed loop is not reported as an error.
    task._log_destroy_pending = False


def test_cancelled_requests_do_not_accumulate_in_the_queue(one: Executor) -> None:
    function = Gated()
    queue = RequestQueue(function, max_pending=4, executor=one)
    function.block(queue)
    live = queue.submit("live")
    assert all(queue.submit(k).cancel() for k in range(1000))
    assert queue.pending == 1 and len(queue._state.heap) < 100
    function.gate.set()
    assert live.result(60) == "live" and function.order == ["first", "live"]


def test_priorities_come_before_the_order_of_submission(one: Executor) -> None:
    function = Gated()
    queue, other = RequestQueue(function, executor=one), RequestQueue(function, priority=2, executor=one)
    function.block(queue)
    futures = [queue.submit("a"), queue.submit("b", priority=1), other.submit("c"), queue.submit("d", priority=3)]
    function.gate.set()
    for future in futures:
        future.result(60)
    assert function.order == ["first", "d", "c", "b", "a"]


def test_queues_share_processors_fairly() -> None:
    time = [0.0]
    run, turns, gate = Executor(lambda: 1, Threading(clock=lambda: time[0])), list[str](), threading.Event()

    def use(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            assert gate.wait(60)
            turns.append(name)
            time[0] += seconds

        return call

    slow, fast = RequestQueue(use("slow", 0.4), executor=run), RequestQueue(use("fast", 0.1), executor=run)
    futures = [queue.submit() for queue in (slow, fast) for _ in range(40)]
    gate.set()
    for future in futures:
        future.result(60)
    # While both have requests, each uses half of the time: four fast calls for each slow one.
    early = turns[:40]
    assert 28 <= early.count("fast") <= 34


def test_a_full_queue_blocks_until_a_request_starts(one: Executor) -> None:
    function = Gated()
    queue = RequestQueue(function, max_pending=1, executor=one)
    function.block(queue)
    queue.submit("second")
    with pytest.raises(DeadlineError, match="did not start before its deadline"):
        queue.submit("late", deadline=0.02).result(0)
    submitted = threading.Thread(target=lambda: queue.submit("third").result(60))
    submitted.start()
    function.gate.set()
    submitted.join(60)
    assert function.order == ["first", "second", "third"]


def test_callbacks_do_not_wait_for_space(one: Executor) -> None:
    function, errors = Gated(), list[Exception]()
    queue = RequestQueue(function, max_pending=1, executor=one)

    def submit(done: BaseFuture[Any]) -> None:
        try:
            queue.submit("from the callback")
        except QueueFullError as error:
            errors.append(error)

    first = function.block(queue)
    first.add_done_callback(submit)
    second = queue.submit("second")
    function.gate.set()
    assert second.result(60) == "second" and "increase max_pending" in str(errors[0])


def test_deadlines_are_noticed_while_all_threads_are_busy(one: Executor) -> None:
    function = Gated()
    queue = RequestQueue(function, executor=one)
    function.block(queue)
    late, in_time = queue.submit("late", deadline=0.01), queue.submit("in time", deadline=60)
    with pytest.raises(TimeoutError):
        late.result(30)
    function.gate.set()
    assert in_time.result(60) == "in time" and function.order == ["first", "in time"]


def test_map_keeps_the_order_and_reads_ahead() -> None:
    read = list[int]()

    def feeds() -> Iterator[int]:
        for k in range(100):
            read.append(k)
            yield k

    queue = RequestQueue(lambda x: -x, streams=2)
    results = queue.map(feeds(), in_flight=3)
    assert next(results) == 0 and read == [0, 1, 2]
    assert [*results] == [-k for k in range(1, 100)]
    with pytest.raises(DlcError, match=r"in_flight = 0; expected an integer >= 1"):
        queue.map([], in_flight=0)


def test_a_closed_map_cancels_its_requests(one: Executor) -> None:
    function = Gated()
    function.gate.set()
    queue = RequestQueue(function, executor=one)
    results = queue.map(iter(range(10**9)), in_flight=8)
    assert [next(results), next(results)] == [0, 1]
    results.close()
    queue.submit("last").result(60)
    assert len(function.order) <= 11


def test_futures_can_be_awaited() -> None:
    queue = RequestQueue(lambda x: 2 * x)

    async def main() -> list[int]:
        return await asyncio.gather(*(queue.submit(k) for k in range(20)))

    assert asyncio.run(main()) == [2 * k for k in range(20)]


def test_ended_requests_keep_nothing_alive() -> None:
    """Without the garbage collector: arrays must be freed, and their memory reused, at once, also after an error."""

    def function(x: Any) -> Any:
        if x.sum() < 0:
            raise DlcError("a negative sum")
        return np.ones(3).view(dlc.Array)

    queue, model = RequestQueue(function), halves_batched()
    gc.disable()
    try:
        for submit in (queue.submit, model.submit):
            for value in (1, -1):
                argument = np.full((1, 5 if value < 0 else 4), value, np.float32).view(dlc.Array)
                references = [weakref.ref(argument)]
                future = submit(argument, deadline=1000)
                if future.exception(60) is None and submit == queue.submit:
                    references.append(weakref.ref(future.result()))
                elif value < 0:
                    references.append(weakref.ref(future.exception()))
                del future, argument
                for _ in range(1000):
                    if not any(reference() is not None for reference in references):
                        break
                    threading.Event().wait(0.01)
                assert not any(reference() is not None for reference in references)
    finally:
        gc.enable()


def halves_batched() -> BatchedModel:
    """Return a model that joins requests of four columns, and refuses others."""
    function = dlc.jit(lambda x: x / 2, dynamic={"x": {0: "N:1..8"}})
    return dlc.batched(function.lower(np.ones((2, 4), np.float32)).compile())


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"streams": 0}, "streams = 0; expected an integer >= 1"),
        ({"streams": 1.5}, "streams = 1.5; expected an integer >= 1"),
        ({"max_pending": -1}, "max_pending = -1; expected an integer >= 1"),
        ({"num_threads": True}, "num_threads = True; expected an integer >= 1"),
        ({"priority": 0.5}, "priority = 0.5; expected an integer"),
        ({"cpus": []}, r"cpus \[\]: expected one or more of the processors"),
        ({"cpus": [99999]}, r"cpus \[99999\]: expected one or more of the processors"),
        ({"cpus": "0"}, "cpus '0': expected the numbers of processors"),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], expected: str) -> None:
    with pytest.raises(DlcError, match=expected):
        RequestQueue(print, **wrong)


def test_wrong_functions_and_feeds() -> None:
    with pytest.raises(DlcError, match="function is a str; expected a model or another callable"):
        RequestQueue(cast("Any", "model.onnx"))
    for queue in (RequestQueue(np.negative), dlc.jit(lambda x: -x).lower(np.ones(2)).compile()):
        for feeds, kind in ((3, "int"), ({"x": np.ones(2)}, "dict")):
            with pytest.raises(DlcError, match=f"map: feeds is a {kind}; expected an iterable of arguments"):
                queue.map(cast("Any", feeds))


@pytest.mark.parametrize("make", [lambda: RequestQueue(lambda x: x), halves_batched])
def test_wrong_priorities_and_deadlines(make: Callable[[], Any]) -> None:
    queue, x = make(), np.ones((2, 4), np.float32)
    for wrong in (float("nan"), "1", [1], 10**400):
        with pytest.raises(DlcError, match=r"deadline = .*; expected a number of seconds, or None"):
            queue.submit(x, deadline=wrong)
    for wrong in (1.5, int, np.ones(1, np.int64)):
        with pytest.raises(DlcError, match=r"priority = .*; expected an integer"):
            queue.submit(x, priority=wrong)
    with pytest.raises(DlcError, match=r"in_flight = 1\.5; expected an integer >= 1"):
        queue.map([x], in_flight=1.5)
    with pytest.raises(DeadlineError):
        queue.submit(x, deadline=-1).result(0)
    # Waiting for a distant deadline leaves the earlier ones alone.
    distant = [queue.submit(x, deadline=seconds) for seconds in (float("inf"), 1e30, np.float32(1e9))]
    assert queue.submit(x, deadline=60).result(60) is not None and all(future.result(60) is not None for future in distant)


def test_priorities_of_unsigned_types(one: Executor) -> None:
    """The negative of an unsigned integer is positive."""
    queue, may_end, order = RequestQueue(lambda f: f(), executor=one), threading.Event(), list[int]()
    first = queue.submit(may_end.wait)
    calls = [queue.submit(partial(order.append, int(p)), priority=p) for p in (0, np.uint8(1), np.uint8(200))]
    may_end.set()
    assert first.result(60) and [call.result(60) for call in calls] == [None] * 3 and order == [200, 1, 0]


def test_processors_that_are_lost_fail_the_request_only(one: Executor) -> None:
    """A cgroup can take processors from a running process."""
    queue = RequestQueue(lambda x: x, cpus=cpu_affinity(), executor=one)
    queue._state.cpus = frozenset({99999})
    with pytest.raises(OSError, match="Invalid argument"):
        queue.submit(1).result(60)
    queue._state.cpus = cpu_affinity()
    assert queue.submit(2).result(60) == 2


def test_a_system_without_threads_for_deadlines() -> None:
    def refuse(main: Callable[[], None], name: str) -> None:
        if name == "dlc-deadlines":
            raise RuntimeError("can't start new thread")
        threading.Thread(target=main, daemon=True).start()

    queue = RequestQueue(lambda x: x, max_pending=1, executor=Executor(lambda: 1, Threading(start_thread=refuse)))
    for _ in range(2):
        with pytest.raises(DeviceError, match="cannot start a thread that watches deadlines"):
            queue.submit(1, deadline=60)
    assert queue.pending == 0 and queue.submit(1).result(60) == 1


@dlc.jit
def halves(x: Any) -> Any:
    return {"sum": dnp.sum(x), "parts": (x / 2, x * 2)}


def test_functions_are_submitted() -> None:
    first = halves.submit(X)
    second = halves.submit(first["parts"][1])
    np.testing.assert_array_equal(second.result(60)["parts"][0], X)
    assert [float(result["sum"]) for result in halves.map([X, 2 * X])] == [15, 30]
    with dlc.disable_jit():
        assert float(halves.submit(X).result(60)["sum"]) == 15
    with pytest.raises(DlcError, match=r"halves\.submit: called while another function is traced"):
        dlc.jit(lambda x: halves.submit(x))(X)


@pytest.mark.parametrize(("num_threads", "streams"), [(None, 1), (1, 4), (3, 2), (None, 2)])
def test_streams_give_the_results_of_calls(num_threads: int | None, streams: int) -> None:
    @dlc.jit(num_threads=num_threads, streams=streams)
    def net(x: Any, w: Any) -> Any:
        return dnp.tanh(x @ w) @ w

    rng = np.random.default_rng(0)
    w = rng.standard_normal((96, 96)).astype(np.float32)
    feeds = [rng.standard_normal((256, 96)).astype(np.float32) for _ in range(40)]
    expected = [net(x, w) for x in feeds]
    results = [net.submit(x, w) for x in feeds]
    assert net.requests.streams == streams
    for future, right in zip(results, expected, strict=True):
        np.testing.assert_array_equal(future.result(60), right)


def test_models_are_submitted(tmp_path: Any) -> None:
    model = halves.lower(X).compile()
    name = model.inputs[0].name
    assert model.submit({name: X}).result(60).keys() == model(X).keys()
    with pytest.raises(ShapeError):
        model.submit(np.ones((9, 9), np.float32)).result(60)
    model.save(tmp_path / "halves.dlc")
    loaded = dlc.load(tmp_path / "halves.dlc", streams=2)
    assert loaded.requests.streams == 2
    for feed, result in zip((X, X + 1), loaded.map([{name: X}, {name: X + 1}]), strict=True):
        for output, right in model(feed).items():
            np.testing.assert_array_equal(result[output], right)


def test_the_process_ends_with_requests_and_a_fork_has_its_own_executor() -> None:
    script = """
import os, threading, time
import numpy as np
import dlc
from dlc.runtime.requests.request_queue import RequestQueue
queue = RequestQueue(lambda x: x)
assert queue.submit(1).result(60) == 1
child = os.fork()
if not child:
    os._exit(RequestQueue(lambda x: x).submit(3).result(60))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3

# The child forgets requests of its parent.
gate = threading.Event()
queue = RequestQueue(lambda x: gate.wait(60) and x, max_pending=1)
model = dlc.jit(lambda x: x * 2, dynamic={"x": {0: "N:1..8"}}).lower(np.ones((2, 3), np.float32)).compile()
batched = dlc.batched(model, max_delay_ms=100)
running, waiting, joined = queue.submit(4), queue.submit(5), batched.submit(np.ones((1, 3), np.float32))
child = os.fork()
gate.set()
results = queue.submit(6).result(60), batched.submit(np.ones((1, 3), np.float32)).result(60)["result"][0, 0]
if not child:
    os._exit(results == (6, 2))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
assert (running.result(60), waiting.result(60), joined.result(60)["result"][0, 0]) == (4, 5, 2)

slow = RequestQueue(time.sleep)
for _ in range(3):
    slow.submit(0.05)
print("end")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_memory_is_limited_before_a_call_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_MEMORY_LIMIT", "64K")
    weight = np.ones((64, 64), np.float32)
    function = dlc.jit(lambda x: dnp.exp(x @ weight) @ weight, dynamic={"x": {0: "N:1..4096"}})
    assert function(np.ones((4, 64), np.float32)).shape == (4, 64)
    for call in (function, lambda x: function.submit(x).result(60)):
        with pytest.raises(MemoryLimitError, match="DLC_MEMORY_LIMIT is 65536: use smaller inputs"):
            call(np.ones((4096, 64), np.float32))
    # The model is not damaged.
    assert function(np.ones((5, 64), np.float32)).shape == (5, 64)
    with pytest.raises(MemoryError):
        dlc.jit(lambda x: dnp.exp(x @ weight) @ weight)(np.ones((1024, 64), np.float32))


def test_calls_run_on_the_processors_of_their_model() -> None:
    first, last = min(cpu_affinity()), max(cpu_affinity())
    queue = RequestQueue(lambda x: cpu_affinity(), cpus=[last])
    assert [*queue.map([1, 2])] == [frozenset({last})] * 2
    assert RequestQueue(lambda x: cpu_affinity()).submit(1).result(60) == cpu_affinity()
    seen = list[frozenset[int]]()

    def record(x: Any) -> Any:
        seen.append(cpu_affinity())
        return x

    @dlc.jit(cpus={first}, streams=2)
    def function(x: Any) -> Any:
        return dlc.ffi.pure_callback(record, x, x) * 2

    model = function.lower(X).compile()
    assert model.num_threads == 1 and model.cpus == {first}
    np.testing.assert_array_equal(model.submit(X).result(60)["result"], 2 * X)
    assert seen == [frozenset({first})]
    with pytest.raises(DlcError, match=r"cpus \[99999\]: expected one or more of the processors"):
        dlc.jit(lambda x: x, cpus=[99999])


@pytest.mark.skipif(len(cpu_affinity()) < 2, reason="one processor")
def test_threads_of_a_model_run_on_its_processors() -> None:
    first, *others = sorted(cpu_affinity())
    model = dlc.jit(lambda x: dnp.exp(x), num_threads=2, cpus=others).lower(np.ones((512, 512), np.float32)).compile()
    before = {int(task) for task in os.listdir("/proc/self/task")}
    model(np.ones((512, 512), np.float32))
    new = {int(task) for task in os.listdir("/proc/self/task")} - before
    assert [os.sched_getaffinity(task) for task in new] == [set(others)]
    assert cpu_affinity() == {first, *others}

"""Request batching: results are those of single calls, and errors reach only the request that causes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.arrays import TensorInfo
from dlc.errors import ArgumentError, DeadlineError, DeviceError, DlcError, ShapeError, UnsupportedError
from dlc.runtime.models.model import Model
from dlc.runtime.requests.executor import Executor
from dlc.runtime.requests.future import Future
from dlc.runtime.requests.request_queue import RequestQueue
from dlc.runtime.requests.threading_primitives import Threading
from dlc.shapes.dims import Dim
from tests.project.documented import network

F32 = np.dtype(np.float32)
N, L = Dim.symbol("N"), Dim.symbol("L")


class Recorded:
    """A model y = 2·x on rows of any length, whose calls are recorded; `gate` holds back the first one."""

    def __init__(self) -> None:
        self.calls, self.gate, self.started = list[tuple[int, ...]](), threading.Event(), threading.Event()
        infos = [TensorInfo(name, (N, L), F32) for name in ("x", "y")]
        self.model = Model(infos[:1], infos[1:], self.run, "recorded")
        self.gate.set()

    def run(self, arrays: Any) -> list[NDArray[Any]]:
        self.started.set()
        assert self.gate.wait(60)
        self.calls.append(arrays[0].shape)
        if (arrays[0] < 0).any():
            raise DlcError("a negative value")
        return [2 * arrays[0]]


def rows(count: int, value: float = 1, length: int = 3) -> NDArray[Any]:
    return np.full((count, length), value, np.float32)


def test_requests_that_arrive_together_are_one_call() -> None:
    recorded = Recorded()
    model = dlc.batched(recorded.model, max_batch=8, max_delay_ms=10_000)
    futures = [model.submit(rows(count, value)) for count, value in ((1, 3), (4, 5), (3, 7))]
    for future, (count, value) in zip(futures, ((1, 3), (4, 5), (3, 7)), strict=True):
        np.testing.assert_array_equal(future.result(60)["y"], rows(count, 2 * value))
    assert recorded.calls == [(8, 3)] and model.batch_sizes == {3: 1}


def test_a_request_waits_at_most_for_the_delay() -> None:
    recorded = Recorded()
    model = dlc.batched(recorded.model, max_batch=100, max_delay_ms=1)
    assert model(rows(2))["y"].shape == (2, 3) and recorded.calls == [(2, 3)]


def test_requests_during_a_call_form_the_next_batch() -> None:
    recorded = Recorded()
    recorded.gate.clear()
    model = dlc.batched(recorded.model, max_batch=4, max_delay_ms=0)
    first = model.submit(rows(1))
    assert recorded.started.wait(60)
    others = [model.submit({"x": rows(1, k)}) for k in range(6)]
    recorded.gate.set()
    for future in (first, *others):
        future.result(60)
    assert recorded.calls == [(1, 3), (4, 3), (2, 3)]


def test_other_sizes_are_not_joined() -> None:
    recorded = Recorded()
    model = dlc.batched(recorded.model, max_batch=2, max_delay_ms=10_000)
    futures = [model.submit(rows(1, 1, length)) for length in (3, 5, 3, 5)]
    assert [future.result(60)["y"].shape for future in futures] == [(1, 3), (1, 5), (1, 3), (1, 5)]
    assert sorted(recorded.calls) == [(2, 3), (2, 5)]


def test_an_error_reaches_its_request_only() -> None:
    recorded = Recorded()
    model = dlc.batched(recorded.model, max_batch=3, max_delay_ms=10_000)
    futures = [model.submit(rows(1, value)) for value in (1, -1, 2)]
    with pytest.raises(DlcError, match="a negative value"):
        futures[1].result(60)
    assert [futures[k].result(60)["y"][0, 0] for k in (0, 2)] == [2, 4]
    for wrong in (np.ones(3, np.float32), rows(4)):
        with pytest.raises(ShapeError):
            model(wrong)


def test_cancelled_and_late_requests_leave_the_batch() -> None:
    recorded = Recorded()
    model = dlc.batched(recorded.model, max_batch=10, max_delay_ms=100)
    cancelled, late, right = model.submit(rows(1)), model.submit(rows(1), deadline=0.001), model.submit(rows(1))
    assert cancelled.cancel() and cancelled.cancelled()
    with pytest.raises(DeadlineError):
        late.result(60)
    with pytest.raises(CancelledError):
        cancelled.result(60)
    assert right.result(60)["y"].shape == (1, 3) and recorded.calls == [(1, 3)]
    assert not right.cancel()


def test_pending_requests_are_bounded() -> None:
    recorded = Recorded()
    model = dlc.batched(recorded.model, max_batch=100, max_delay_ms=10_000, max_pending=2)
    waiting = [model.submit(rows(1)) for _ in range(2)]
    with pytest.raises(DeadlineError):
        model.submit(rows(1), deadline=0.01).result(0)
    assert all(future.cancel() for future in waiting)
    waiting = [model.submit(rows(1)) for _ in range(2)]
    assert all(future.cancel() for future in waiting)


@pytest.mark.parametrize("settings", [{"max_delay_ms": 100}, {"max_delay_ms": 0}])
def test_a_system_without_threads_that_watch_times(settings: dict[str, float]) -> None:
    def refuse(main: Callable[[], None], name: str) -> None:
        if name == "dlc-deadlines":
            raise RuntimeError("can't start new thread")
        threading.Thread(target=main, daemon=True).start()

    recorded = Recorded()
    executor = Executor(lambda: 1, Threading(start_thread=refuse))
    recorded.model.__dict__["requests"] = RequestQueue(recorded.model, executor=executor)
    model = dlc.batched(recorded.model, max_batch=8, max_pending=1, **settings)
    for _ in range(2):
        with pytest.raises(DeviceError, match="cannot start a thread that watches deadlines"):
            model.submit(rows(1), deadline=60).result(60)
    assert model.num_pending == 0 and not model._groups
    assert model.submit(rows(8)).result(60)["y"].shape == (8, 3)


def test_futures_are_inputs() -> None:
    model = dlc.batched(Recorded().model, max_batch=1)
    assert model.submit(model.submit(rows(1))["y"]).result(60)["y"][0, 0] == 4
    assert [result["y"][0, 0] for result in model.map([rows(1, k) for k in range(20)])] == [2 * k for k in range(20)]


def test_a_request_fails_once_with_its_first_failed_dependency(caplog: pytest.LogCaptureFixture) -> None:
    model, dependencies = dlc.batched(Recorded().model, max_batch=1), [Future() for _ in range(3)]
    request = model.submit({"x": dependencies})
    # The second failure arrives before the exception of the first one is set.
    report = request.set_exception

    def fail_another(error: BaseException | None) -> None:
        dependencies[1].set_exception(DlcError("second"))
        dependencies[2].set_result(rows(1))
        report(error)

    request.set_exception = fail_another
    dependencies[0].set_exception(DlcError("first"))
    with pytest.raises(DlcError, match="first"):
        request.result(60)
    # concurrent.futures logs errors of callbacks.
    assert not caplog.records and model.num_pending == 0


def test_groups_of_ended_requests_are_removed() -> None:
    model = dlc.batched(Recorded().model, max_batch=2, max_delay_ms=100)
    assert [model(rows(1, length=length))["y"].shape[1] for length in (1, 2)] == [1, 2]
    assert model.submit(rows(1, length=4)).cancel()
    assert not model._groups


@pytest.mark.parametrize(
    ("inputs", "outputs", "problem"),
    [
        ([(2, 3)], [(2, 3)], "input x0: float32[2, 3]"),
        ([(N, 3), (3,)], [(N, 3)], "input x1: float32[3]"),
        ([(N, 3)], [()], "output y0: float32[]"),
        ([(N, N)], [(N, 1)], "input x0: float32[N, N]"),
        ([], [(3,)], "output y0: float32[3]"),
    ],
)
def test_models_without_a_batch_dimension_are_refused(inputs: Any, outputs: Any, problem: str) -> None:
    infos = [
        [TensorInfo(f"{letter}{k}", s, F32) for k, s in enumerate(shapes)] for letter, shapes in (("x", inputs), ("y", outputs))
    ]
    with pytest.raises(UnsupportedError, match="expected the same symbolic dimension as axis 0") as raised:
        dlc.batched(Model(*infos, lambda arrays: arrays))
    assert problem in str(raised.value)
    with pytest.raises(ArgumentError, match="max_batch = 0; expected a number >= 1"):
        dlc.batched(Recorded().model, max_batch=0)


def test_results_of_a_network_are_bitwise_those_of_single_calls() -> None:
    model = dlc.compile_model(network(["logits"], "N"), input_shapes={"x": ("N:1..64", 32)}, cache=False)
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal((1 + k % 3, 32), np.float32) for k in range(64)]
    expected = [model(x)["logits"] for x in feeds]
    joined = dlc.batched(model, max_batch=16, max_delay_ms=2)
    with ThreadPoolExecutor(8) as clients:
        results = [*clients.map(joined, feeds)]
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result["logits"], right)


def test_mixed_load_returns_each_result_to_its_request() -> None:
    """Every result is that of its own request, with cancellations, deadlines and errors in between."""
    recorded = Recorded()
    model = dlc.batched(recorded.model, max_batch=7, max_delay_ms=0.5, max_pending=50)
    outcomes = {"result": 0, "cancelled": 0, "late": 0, "error": 0}
    lock = threading.Lock()

    def client(number: int) -> None:
        random = np.random.default_rng(number)
        for k in range(150):
            value = float(number * 1000 + k + 1) * (-1 if random.random() < 0.05 else 1)
            x = rows(int(random.integers(1, 4)), value, int(random.integers(2, 4)))
            future = model.submit(x, deadline=0.0005 if random.random() < 0.1 else None)
            if random.random() < 0.1:
                future.cancel()
            try:
                np.testing.assert_array_equal(future.result(60)["y"], 2 * x)
                assert value > 0
                kind = "result"
            except CancelledError:
                kind = "cancelled"
            except DeadlineError:
                kind = "late"
            except DlcError:
                assert value < 0
                kind = "error"
            with lock:
                outcomes[kind] += 1

    threads = [threading.Thread(target=client, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sum(outcomes.values()) == 6 * 150 and outcomes["result"] > 300, outcomes
    deadline = time.monotonic() + 60
    while model.requests.pending or model.requests.running:
        assert time.monotonic() < deadline
        time.sleep(0.01)

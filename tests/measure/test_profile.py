"""Profiles of models and functions, and traces of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import dlc
from dlc import lax
from dlc.cli import main
from dlc.measure.timeline import TimelineRecorder
from tests.explore.programs import LIMITS, MNIST, XS, W, recurrence, tiny
from tests.targets import SHORT


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlc.backends.cpu.limits.measured_limits", lambda target, threads=1: LIMITS)


def test_profile_of_a_function() -> None:
    profile = recurrence.profile(W, XS)
    runs = {k.name: k.runs for k in profile.kernels}
    assert runs["matmul_add_tanh"] == 40 and profile.threads == 1
    assert profile.seconds > 0 and profile.arena_bytes > 0 and "llvm" in profile.phases
    assert [k.seconds for k in profile.kernels] == sorted((k.seconds for k in profile.kernels), reverse=True)
    text = str(profile)
    assert text.startswith("recurrence: ") and "matmul_add_tanh" in text and "compiled: " in text
    assert json.loads(profile.to_json())["kernels"][0]["name"] == profile.kernels[0].name
    assert "<td>matmul_add_tanh</td>" in profile._repr_html_()


def test_profile_of_the_taken_branch() -> None:
    @dlc.jit(target=SHORT, num_threads=1)
    def either(x):
        return lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x / 3, x)

    taken = [{k.name for k in either.profile(np.full(4, n, np.float32)).kernels} for n in (1, -1)]
    assert taken == [{"reduce_sum_greater", "mul"}, {"reduce_sum_greater", "div"}]


def test_profile_of_the_specialization_for_a_call() -> None:
    @dlc.jit(target=SHORT, num_threads=1, dynamic={"x": {0: "N"}, "y": {0: "M"}})
    def f(x, y):
        return x.reshape(-1, 2).sum() if x.shape[0] >= y.shape[0] else y * 2

    x, y = np.ones(6, np.float32), np.ones(4, np.float32)
    profiles = [f.profile(x, y), f.profile(y, x)]
    assert [[k.name for k in profile.kernels] for profile in profiles] == [["reduce_sum"], ["mul"]]


def test_a_limit_below_what_a_kernel_reaches_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    low = replace(LIMITS, flops=1.0)
    monkeypatch.setattr("dlc.backends.cpu.limits.measured_limits", lambda target, threads=1: low)
    x = np.ones((128, 128), np.float32)
    product = dlc.jit(lambda x: x @ x, target=SHORT, num_threads=1)
    (kernel,) = product.profile(x).kernels
    assert kernel.flops > 0 and kernel.min_seconds <= 1.001 * kernel.seconds


def test_profile_counts_compilations() -> None:
    @dlc.jit(target=SHORT, num_threads=1)
    def doubled(x):
        return x + x

    for size in (2, 3, 2):
        doubled(np.ones(size, np.float32))
    profile = doubled.profile(np.ones(3, np.float32))
    assert profile.compilations == 2 and "compiled for 2 kinds" in str(profile)


def test_profile_of_a_model() -> None:
    model = dlc.compile_model(MNIST, target=SHORT, num_threads=1)
    profile = model.profile(np.zeros((1, 1, 28, 28), np.float32))
    assert profile.weight_bytes == 4 * (9 * 8 + 8 + 9 * 8 * 16 + 16 + 784 * 10 + 10)
    assert sum(k.flops for k in profile.kernels) == 2 * (28 * 28 * 8 * 9 + 14 * 14 * 16 * 8 * 9 + 784 * 10)


def test_profiles_need_a_cpu_target() -> None:
    model = dlc.compile_model(MNIST, target="reference")
    with pytest.raises(dlc.UnsupportedError, match="only programs for a CPU"):
        model.profile(np.zeros((1, 1, 28, 28), np.float32))


def test_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    command = ["bench", str(MNIST), "--trace", str(file), "--seconds", "0", "--num-threads", "1"]
    assert CliRunner().invoke(main, command, catch_exceptions=False).exit_code == 0
    trace = json.loads(file.read_text())["traceEvents"]
    events = [e for e in trace if e["ph"] == "X"]
    assert len(events) == 7 and events[-1]["name"] == "softmax"
    assert events[-1]["args"] == {"layers": ["node_softmax"], "tasks": 1, "run": 6}
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(events))
    assert {e["tid"]: e["args"]["name"] for e in trace if e["name"] == "thread_name"} == {0: "the caller"}


def test_each_task_is_recorded_once() -> None:
    """Two threads share the tasks dynamically."""
    x = np.ones((1 << 16,), np.float32)
    model = dlc.compile_model(tiny("Exp", size=len(x)), target=SHORT, num_threads=2)
    watch = TimelineRecorder(model.artifact, [x], 2)
    (kernel,) = model.artifact.kernels
    for _ in range(3):
        run = watch.run()
        assert sorted(run.tasks[:, 1]) == list(range(kernel.tasks[0])) and kernel.tasks[0] > 1
        spans = list(run.spans([0]))
        assert sum(s.tasks for s in spans) == kernel.tasks[0] and len({s.thread for s in spans}) == len(spans)
        assert max(s.start + s.seconds for s in spans) == pytest.approx(run.seconds) == pytest.approx(run.launch_seconds[0])

"""dlc.optim computes the parameters that optax computes, traced and on plain arrays."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import dlc
from dlc import optim
from dlc.errors import ShapeError
from tests.optim.recorded_runs import RECORDED, RUNS, beginning

EXPECTED = json.loads(RECORDED.read_text())
NAMES = {
    "m": optim,
    "constant": optim.constant_schedule,
    "linear": optim.linear_schedule,
    "cosine": lambda peak, steps, warmup, end: optim.cosine_schedule(peak, steps, warmup=warmup, end=end),
}


def test_all_are_recorded() -> None:
    assert [*EXPECTED] == [*RUNS]


@pytest.mark.parametrize("target", [None, "reference", "cpu"])
@pytest.mark.parametrize("run", RUNS)
def test_parameters_after_some_steps(run: str, target: str | None) -> None:
    optimizer = eval(run, NAMES)

    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    step = step if target is None else dlc.jit(target=target, num_threads=1)(step)
    params, grads = beginning(np.float32)
    state = optimizer.init(params)
    for g in grads:
        params, state = step(params, state, g)
    for got, expected in zip((params["w"], params["layers"][0]), EXPECTED[run], strict=True):
        assert np.asarray(got).dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)


def test_a_state_is_a_named_tuple_of_trees() -> None:
    params, grads = beginning(np.float16)
    optimizer = optim.adam(0.1)
    updates, state = optimizer.update(grads[0], optimizer.init(params))
    assert isinstance(state, optim.AdamState)
    assert state.count == 1
    assert state.mean["w"].dtype == np.float16
    assert optim.apply_updates(params, updates)["w"].dtype == np.float16


def test_the_norm_of_a_tree() -> None:
    assert optim.global_norm({"a": np.array([3.0, 0.0]), "b": [np.array(4.0)]}) == 5


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (optim.constant_schedule(0.5), [0.5, 0.5, 0.5, 0.5, 0.5]),
        (optim.linear_schedule(1.0, 0.5, 2), [1, 0.75, 0.5, 0.5, 0.5]),
        (optim.cosine_schedule(1.0, 4), [1, 0.8535534, 0.5, 0.1464466, 0]),
        (optim.cosine_schedule(1.0, 4, warmup=2, end=0.5), [0, 0.5, 1, 0.75, 0.5]),
    ],
)
def test_schedules(schedule: optim.schedules.Schedule, values: list[float]) -> None:
    np.testing.assert_allclose([schedule(k) for k in range(5)], values, atol=1e-6)
    np.testing.assert_allclose(dlc.jit(lambda k: schedule(k))(np.int32(3)), values[3], atol=1e-6)


def test_mistakes() -> None:
    params, grads = beginning(np.float32)
    optimizer = optim.adamw(0.1, weight_decay=0.1)
    with pytest.raises(TypeError, match="weight_decay"):
        optim.adamw(0.1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(ShapeError, match=r"test_optimizers.py:\d+: dlc.optim.adamw: update\(grads, state\) without params"):
        optimizer.update(grads[0], optimizer.init(params))
    with pytest.raises(ShapeError, match=r"'layers'.*expected the same structure"):
        optimizer.update({"w": grads[0]["w"]}, optimizer.init(params), params)

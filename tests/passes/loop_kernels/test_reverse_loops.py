"""Gradients of batches of scans: the scan and its reverse are one kernel over lanes, with the results of the evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from tests.passes.loop_kernels.test_loops_to_kernels import loop_ops, program

RNG = np.random.default_rng(0)


def rotation(x: Any, rate: Any) -> Any:
    """The last state and the sums of all states."""

    def step(x: Any, _: Any) -> Any:
        x = x + 0.1 * dnp.stack([x[1], -rate * x[0]]) * dnp.cos(x)
        return x, x.sum()

    return lax.scan(step, x, None, length=12)


def driven(x: Any, forces: Any) -> Any:
    def step(x: Any, force: Any) -> Any:
        x = x * 0.99 + dnp.tanh(x * force)
        return x, x

    return lax.scan(step, x, forces)


def last_state(x: Any, rate: Any) -> Any:
    return dlc.vmap(rotation)(x, rate)[0]


def squared_trajectories(x: Any, forces: Any) -> Any:
    """The cotangents of the stacked results are computed from them."""
    return dlc.vmap(driven)(x, forces)[1] - np.linspace(0, 1, 12)


def shared_rate(x: Any, rate: Any) -> Any:
    """The cotangent of an argument that all lanes share is summed after the loop."""
    return dlc.vmap(rotation, in_axes=(0, None))(x, rate)


def two_phases(x: Any, rate: Any) -> Any:
    """The second loop and its reverse are between the first and its reverse."""
    first, sums = dlc.vmap(rotation)(x, rate)
    return sums, dlc.vmap(rotation)(first * 2, rate)[0]


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "last_state": (last_state, lambda n: (RNG.standard_normal((n, 2)), RNG.standard_normal(n))),
    "squared_trajectories": (squared_trajectories, lambda n: (RNG.standard_normal(n), RNG.standard_normal((n, 12)))),
    "shared_rate": (shared_rate, lambda n: (RNG.standard_normal((n, 2)), np.float64(1.3))),
    "two_phases": (two_phases, lambda n: (RNG.standard_normal((n, 2)), RNG.standard_normal(n))),
}


def squares(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: sum((x * x).sum() for x in dlc.tree.leaves(function(*args)))


# The last number of lanes gives some tasks several vectors of lanes, and another vector with fewer lanes.
@pytest.mark.parametrize(("name", "lanes"), [*((name, 37) for name in CASES), ("last_state", 16), ("last_state", 700)])
def test_gradient_is_one_kernel(name: str, lanes: int) -> None:
    function, arguments_of = CASES[name]
    arguments, gradient = arguments_of(lanes), dlc.value_and_grad(squares(function), argnums=(0, 1))
    assert loop_ops(program(gradient, *arguments)) == ["dl.loops"]
    expected = dlc.jit(gradient, target="reference", cache=False)(*arguments)
    results = dlc.jit(gradient, num_threads=2, cache=False)(*arguments)
    for got, want in zip(dlc.tree.leaves(results), dlc.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_loss_that_combines_lanes_has_two_kernels() -> None:
    """The cotangents of a lane depend on the final states of all lanes."""

    def loss(x: Any, rate: Any) -> Any:
        last = last_state(x, rate)
        return (last / last.mean()).max()

    arguments = CASES["last_state"][1](20)
    gradient = dlc.grad(loss, argnums=(0, 1))
    assert loop_ops(program(gradient, *arguments)) == ["dl.loops", "dl.loops"]
    expected = dlc.jit(gradient, target="reference", cache=False)(*arguments)
    for got, want in zip(dlc.jit(gradient, cache=False)(*arguments), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)

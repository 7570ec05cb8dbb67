"""Simulations in loops of `dlc.lax` against Python loops over NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import lax

NUM_PARTICLES, NUM_STEPS = 64, 40


def filter_step(np_: Any, particles: Any, observation: Any, noise: Any, offset: Any) -> tuple[Any, Any]:
    """Move and weight particles, and resample them at systematic positions."""
    particles = 0.9 * particles + noise
    weights = np_.exp(-2 * (observation - particles) ** 2)
    total = np_.cumsum(weights)
    positions = (np_.arange(NUM_PARTICLES) + offset) * (total[-1] / NUM_PARTICLES)
    ancestors = np_.minimum(np_.searchsorted(total, positions), NUM_PARTICLES - 1)
    return particles[ancestors], (weights * particles).sum() / total[-1]


def test_particle_filter() -> None:
    rng = np.random.default_rng(0)
    particles, observations = rng.standard_normal(NUM_PARTICLES), rng.standard_normal(NUM_STEPS)
    noise, offsets = rng.standard_normal((NUM_STEPS, NUM_PARTICLES)) / 2, rng.uniform(0, 1, NUM_STEPS)

    @dlc.jit
    def run(particles: Any, *sequences: Any) -> Any:
        return lax.scan(lambda p, inputs: filter_step(dnp, p, *inputs), particles, sequences)[1]

    means, expected = np.asarray(run(particles, observations, noise, offsets)), np.empty(NUM_STEPS)
    for k in range(NUM_STEPS):
        particles, expected[k] = filter_step(np, particles, observations[k], noise[k], offsets[k])
    np.testing.assert_allclose(means, expected, rtol=1e-9)


def cable_step(np_: Any, v: Any, gates: Any) -> tuple[Any, Any]:
    """Step a cable of compartments with the Hodgkin-Huxley membrane by explicit Euler."""
    m, h, n = gates
    opening = (
        0.1 * (v + 40) / (1 - np_.exp(-(v + 40) / 10)),
        0.07 * np_.exp(-(v + 65) / 20),
        0.01 * (v + 55) / (1 - np_.exp(-(v + 55) / 10)),
    )
    closing = 4 * np_.exp(-(v + 65) / 18), 1 / (1 + np_.exp(-(v + 35) / 10)), 0.125 * np_.exp(-(v + 65) / 80)
    current = 120 * m**3 * h * (v - 50) + 36 * n**4 * (v + 77) + 0.3 * (v + 54.4)
    left, right = np_.concatenate([v[:1], v[:-1]]), np_.concatenate([v[1:], v[-1:]])
    gates = tuple(x + 0.005 * (a * (1 - x) - b * x) for x, a, b in zip(gates, opening, closing, strict=True))
    return v + 0.005 * (10 - current + 2 * (left - 2 * v + right)), gates


def test_hodgkin_huxley_cable() -> None:
    """100 compartments, with a gradient by finite differences."""
    v = np.linspace(-65, -60, 100)
    gates = tuple(np.full(100, x) for x in (0.05, 0.6, 0.32))

    def run(v: Any) -> Any:
        return lax.fori_loop(0, 200, lambda _, s: cable_step(dnp, *s), (v, gates))[0]

    expected, state = v, gates
    for _ in range(200):
        expected, state = cable_step(np, expected, state)
    np.testing.assert_allclose(dlc.jit(run)(v), expected, rtol=1e-9)
    gradient = dlc.jit(dlc.grad(lambda v: run(v).sum()))(v)
    step = np.zeros(100)
    step[30] = 1e-4
    sums = [float(np.sum(np.asarray(dlc.jit(run)(v + s)))) for s in (step, -step)]
    np.testing.assert_allclose(np.asarray(gradient)[30], (sums[0] - sums[1]) / 2e-4, rtol=1e-5)

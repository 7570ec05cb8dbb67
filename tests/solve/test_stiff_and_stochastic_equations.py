"""Implicit and stochastic methods of `dlc.solve.diffeqsolve` against exact and published solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax, random, solve

KEYS = np.asarray(random.split(random.key(0), 400))
TIME, DRIFT, VOLATILITY = 1.0, 0.4, 0.7


def prothero_robinson(t: Any, y: Any, rate: Any) -> Any:
    """Return a slope whose solution is cos(t) for any rate."""
    return rate * (y - dnp.cos(t)) - dnp.sin(t)


@pytest.mark.parametrize(("name", "order"), [("ImplicitEuler", 1), ("Kvaerno3", 3), ("Kvaerno5", 5)])
def test_orders_of_implicit_methods(name: str, order: int) -> None:
    method = getattr(solve, name)()
    run = dlc.jit(
        lambda y, dt: solve.diffeqsolve(prothero_robinson, method, 0.0, 1.0, dt, y, -1.0, max_steps=100).ys[0],
        target="reference",
    )
    errors = [abs(run(np.float64(1), np.float64(1 / n)) - np.cos(1.0)) for n in (4, 8)]
    assert np.log2(errors[0] / errors[1]) > order - 0.35
    # Steps are not limited by stability.
    assert abs(run(np.float64(1), np.float64(0.25)) - np.cos(1.0)) < 0.2


def test_robertson_kinetics() -> None:
    """Rates differ by nine orders of magnitude (Hairer and Wanner, IV.10). The gradient is that of the accepted steps."""

    def kinetics(t: Any, y: Any, k: Any) -> Any:
        first, second, third = 0.04 * y[0], k * y[1] * y[1], 1e4 * y[1] * y[2]
        return dnp.stack([third - first, first - third - second, second])

    def final(k: Any) -> Any:
        return solve.diffeqsolve(
            kinetics,
            solve.Kvaerno3(),
            0.0,
            40.0,
            None,
            np.array([1.0, 0.0, 0.0]),
            k,
            stepsize_controller=solve.PIDController(1e-5, 1e-8),
            max_steps=200,
        )

    solution = dlc.jit(final)(np.float64(3e7))
    assert solution.succeeded and solution.stats["num_steps"] < 120
    np.testing.assert_allclose(solution.ys[0], [0.7158271, 9.185535e-6, 0.2841637], rtol=2e-4)
    slope = dlc.jit(lambda k: dlc.jvp(lambda k: final(k).ys[0, 0], (k,), (k,)))(np.float64(3e7))[1]
    difference = (dlc.jit(final)(np.float64(3.03e7)).ys[0, 0] - dlc.jit(final)(np.float64(2.97e7)).ys[0, 0]) / 0.02
    np.testing.assert_allclose(slope, difference, rtol=1e-2)


def geometric(method: Any) -> Any:
    """Return a function that simulates geometric Brownian motion, and adds the increments of the path."""

    def run(key: Any, steps: Any) -> Any:
        terms = solve.MultiTerm(
            solve.ODETerm(lambda t, y, args: DRIFT * y),
            solve.ControlTerm(lambda t, y, args: VOLATILITY * y, solve.UnsafeBrownianPath((), key)),
        )
        end = solve.diffeqsolve(terms, method, 0.0, TIME, TIME / steps, np.float64(1)).ys[0]
        draw = lambda k, total: total + random.normal(random.fold_in(key, k), (2,), np.float64)[0]  # noqa: E731
        return end, lax.fori_loop(0, steps, draw, np.float64(0)) * dnp.sqrt(TIME / steps)

    return dlc.jit(dlc.vmap(run, in_axes=(0, None)))


@pytest.mark.parametrize(
    ("name", "is_ito", "order"),
    [
        ("Euler", True, 0.5),
        ("ItoMilstein", True, 1),
        ("StratonovichMilstein", False, 1),
        ("EulerHeun", False, 1),
        ("Heun", False, 1),
    ],
)
def test_strong_convergence(name: str, is_ito: bool, order: float) -> None:
    """Geometric Brownian motion is exp((μ - σ²/2) T + σ w) in the sense of Itô, exp(μ T + σ w) in that of Stratonovich."""
    errors, run = [], geometric(getattr(solve, name)())
    for steps in (8, 32):
        simulated, path = run(KEYS, np.int64(steps))
        exact = np.exp((DRIFT - (VOLATILITY**2 / 2 if is_ito else 0)) * TIME + VOLATILITY * np.asarray(path))
        errors.append(np.mean(np.abs(simulated - exact)))
    assert abs(np.log2(errors[0] / errors[1]) / 2 - order) < 0.25


def test_additive_noise_and_derivatives() -> None:
    """The stationary variance of an Ornstein-Uhlenbeck process is σ²/2; two components share one noise."""

    def final(key: Any, volatility: Any, method: Any) -> Any:
        terms = solve.MultiTerm(
            solve.ODETerm(lambda t, y, s: -y),
            solve.ControlTerm(lambda t, y, s: dnp.stack([s, 2 * s])[:, None], solve.UnsafeBrownianPath((1,), key)),
        )
        return solve.diffeqsolve(terms, method, 0.0, 4.0, 0.5, np.array([0.3, 0.6]), volatility).ys[0]

    keys = np.asarray(random.split(random.key(1), 5_000))
    run = dlc.jit(dlc.vmap(lambda key: final(key, np.float64(0.8), solve.SRA1())))
    states = np.asarray(run(keys))
    np.testing.assert_allclose(states[:, 1], 2 * states[:, 0], rtol=1e-9)
    np.testing.assert_allclose(states.var(0)[0], 0.32 * (1 - np.exp(-8)), rtol=0.06)
    slope = dlc.jit(dlc.grad(lambda s: final(KEYS[0], s, solve.SRA1())[0]))(np.float64(0.8))
    noisy, calm = (np.asarray(final(KEYS[0], np.float64(s), solve.SRA1()))[0] for s in (1.8, 0.8))
    np.testing.assert_allclose(slope, noisy - calm)


def test_unsupported_combinations() -> None:
    noise = solve.ControlTerm(lambda t, y, args: y, solve.UnsafeBrownianPath((), KEYS[0]))
    terms = solve.MultiTerm(solve.ODETerm(lambda t, y, args: y), noise)
    with pytest.raises(dlc.DlcError, match="SRA1 needs noise"):
        solve.diffeqsolve(lambda t, y, args: y, solve.SRA1(), 0.0, 1.0, 0.1, 1.0)
    with pytest.raises(dlc.DlcError, match="implicit methods do not support noise"):
        solve.diffeqsolve(terms, solve.Kvaerno3(), 0.0, 1.0, 0.1, 1.0)
    with pytest.raises(dlc.DlcError, match="use VirtualBrownianTree"):
        solve.diffeqsolve(terms, solve.Heun(), 0.0, 1.0, 0.1, 1.0, stepsize_controller=solve.PIDController(1e-3, 1e-3))

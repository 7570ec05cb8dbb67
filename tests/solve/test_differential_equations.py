"""`dlc.solve.diffeqsolve` against exact solutions: orders of convergence, dense output, events, derivatives."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import solve
from dlc.errors import DlcError, DTypeError, ShapeError

ADAPTIVE = solve.PIDController(1e-9, 1e-11)
START = np.array([1.0, 0.0])
FREQUENCY = np.float64(2)


def oscillator(t: Any, y: Any, frequency: Any) -> Any:
    """Return the slope of (cos(ωt), -ω sin(ωt))."""
    return dnp.stack([y[1], -(frequency**2) * y[0]])


def fall(t: Any, y: Any, gravity: Any) -> Any:
    return {"height": y["speed"], "speed": -gravity + 0 * y["speed"]}


@pytest.mark.parametrize("name", ["Euler", "Midpoint", "Heun", "Bosh3", "Dopri5", "Tsit5"])
def test_orders_of_convergence(name: str) -> None:
    method, times = getattr(solve, name)(), np.linspace(0, 1, 7)
    errors = []
    for count in (20, 40):
        result = dlc.jit(
            lambda y, count=count: solve.diffeqsolve(
                oscillator, method, 0.0, 1.0, 1 / count, y, FREQUENCY, saveat=solve.SaveAt(ts=times)
            )
        )(START)
        assert result.stats["num_steps"] == result.stats["num_accepted_steps"] == count
        errors.append(np.abs(np.asarray(result.ys)[:, 0] - np.cos(2 * times)).max())
    # Values between steps converge with order 4 at least for methods of order 5.
    assert np.log2(errors[0] / errors[1]) > min(method.order, 4) - 0.2


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_adaptive_steps(target: str) -> None:
    run = dlc.jit(
        lambda y, w: solve.diffeqsolve(oscillator, solve.Tsit5(), 0.0, 3.0, None, y, w, stepsize_controller=ADAPTIVE),
        target=target,
    )
    result = run(START, FREQUENCY)
    assert result.succeeded and result.stats["num_accepted_steps"] <= result.stats["num_steps"] < 200
    np.testing.assert_allclose(result.ys, [[np.cos(6), -2 * np.sin(6)]], atol=1e-8)
    back = dlc.jit(
        lambda y: solve.diffeqsolve(oscillator, solve.Dopri5(), 3.0, 0.0, 0.01, y, FREQUENCY, stepsize_controller=ADAPTIVE)
    )(result.ys[0])
    np.testing.assert_allclose(back.ys[0], START, atol=1e-8)
    stopped = dlc.jit(
        lambda y: solve.diffeqsolve(
            oscillator, solve.Tsit5(), 0.0, 3.0, None, y, FREQUENCY, stepsize_controller=ADAPTIVE, max_steps=5
        )
    )(START)
    assert not stopped.succeeded and stopped.stats["num_steps"] == 5


@pytest.mark.parametrize("controller", [solve.ConstantStepSize(), ADAPTIVE])
def test_states_that_are_not_finite(controller: Any) -> None:
    """Undefined starts, and solutions that become infinite before the end."""
    run = dlc.jit(
        dlc.vmap(
            lambda y: solve.diffeqsolve(lambda t, y, _: y * y, solve.Tsit5(), 0.0, 2.0, 0.1, y, stepsize_controller=controller)
        )
    )
    result = run(np.array([np.nan, 0.25, 3.0, np.inf]))
    np.testing.assert_array_equal(result.succeeded, [False, True, False, False])


def test_one_program_for_all_numbers_of_states() -> None:
    run = dlc.jit(
        lambda y: solve.diffeqsolve(lambda t, y, _: -y, solve.Tsit5(), 0.0, 1.0, None, y, stepsize_controller=ADAPTIVE).ys[0],
        dynamic={"y": {0: "n"}},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a function that is specialized per shape warns
        for size in (1, 3, 40):
            y = np.arange(1.0, size + 1)
            np.testing.assert_allclose(run(y), y / np.e, atol=1e-8)


def test_derivatives_of_adaptive_steps() -> None:
    times = np.array([0.0, 1.0, 2.5])

    def total(y: Any, frequency: Any) -> Any:
        save = solve.SaveAt(ts=times)
        return (
            solve.diffeqsolve(
                oscillator,
                solve.Dopri5(),
                0.0,
                3.0,
                None,
                y,
                frequency,
                stepsize_controller=ADAPTIVE,
                saveat=save,
                max_steps=256,
            )
            .ys[:, 0]
            .sum()
        )

    by_start, by_frequency = dlc.jit(dlc.grad(total, (0, 1)))(START, FREQUENCY)
    np.testing.assert_allclose(by_start, [np.cos(2 * times).sum(), (np.sin(2 * times) / 2).sum()], atol=1e-7)
    assert by_frequency == pytest.approx((-times * np.sin(2 * times)).sum(), abs=1e-7)
    forward = dlc.jit(lambda y, w: dlc.jvp(total, (y, w), (y * 0, w * 0 + 1))[1])(START, FREQUENCY)
    assert forward == pytest.approx(by_frequency)


def test_derivatives_by_the_times() -> None:
    def end(start: Any, stop: Any) -> Any:
        return solve.diffeqsolve(
            oscillator, solve.Tsit5(), start, stop, None, START, FREQUENCY, stepsize_controller=ADAPTIVE, max_steps=256
        ).ys[0, 0]

    by_start, by_stop = dlc.jit(dlc.grad(end, (0, 1)))(np.float64(0.5), np.float64(1.5))
    # The solution is cos(2 (stop - start)).
    assert by_stop == pytest.approx(-2 * np.sin(2), abs=1e-7) and by_start == pytest.approx(2 * np.sin(2), abs=1e-7)


def test_constant_steps_in_batches_and_derivatives() -> None:
    def end(frequency: Any) -> Any:
        return solve.diffeqsolve(oscillator, solve.Tsit5(), 0.0, 1.0, 0.05, START, frequency).ys[0, 0]

    frequencies = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(dlc.vmap(end)(frequencies), np.cos(frequencies), atol=1e-6)
    np.testing.assert_allclose(dlc.vmap(dlc.grad(end))(frequencies), -np.sin(frequencies), atol=1e-5)


def test_events() -> None:
    event = solve.Event(lambda t, y, gravity: y["height"])

    def drop(gravity: Any, save: Any) -> Any:
        start = {"height": np.float64(3), "speed": np.float64(0)}
        return solve.diffeqsolve(fall, solve.Tsit5(), 0.0, 10.0, 0.1, start, gravity, event=event, saveat=save)

    gravity, impact = np.float64(9.81), np.sqrt(6 / 9.81)
    result = dlc.jit(lambda g: drop(g, solve.SaveAt(t1=True)))(gravity)
    assert result.event_mask and result.succeeded and result.ts[0] == pytest.approx(impact)
    assert result.ys["height"][0] == pytest.approx(0, abs=1e-12) and result.ys["speed"][0] == pytest.approx(-9.81 * impact)
    assert dlc.grad(lambda g: drop(g, solve.SaveAt(t1=True)).ts[0])(gravity) == pytest.approx(-impact / 2 / 9.81)
    saved = dlc.jit(lambda g: drop(g, solve.SaveAt(ts=np.array([0.0, 0.5, 0.79]))))(gravity)
    np.testing.assert_allclose(saved.ys["height"], [3, 3 - 9.81 / 8, np.inf])


def test_errors() -> None:
    with pytest.raises(DlcError, match="the solver has no error estimate; use ConstantStepSize"):
        solve.diffeqsolve(oscillator, solve.Euler(), 0.0, 1.0, 0.1, START, 1.0, stepsize_controller=ADAPTIVE)
    with pytest.raises(DlcError, match="dt0 is None; give the length of the steps"):
        solve.diffeqsolve(oscillator, solve.Tsit5(), 0.0, 1.0, None, START, 1.0)
    with pytest.raises(DlcError, match="dt0 = 0; expected the length of a step, which is not 0"):
        solve.diffeqsolve(oscillator, solve.Tsit5(), 0.0, 1.0, 0, START, 1.0)
    with pytest.raises(DTypeError, match=r"solver is a function; expected one of .*; call it: Tsit5\(\)"):
        solve.diffeqsolve(oscillator, solve.Tsit5, 0.0, 1.0, 0.1, START, 1.0)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="stepsize_controller is a str; expected one of ConstantStepSize, PIDController"):
        solve.diffeqsolve(oscillator, solve.Tsit5(), 0.0, 1.0, 0.1, START, 1.0, stepsize_controller="pid")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "slope", "message"),
    [
        (np.ones((2, 3)), lambda y: y.T, r"returned shape \(3, 2\); expected \(2, 3\)"),
        ((1.0, 5.0), lambda y: y[0], "returned an array or number; expected a tuple of 2"),
        (
            {"x": 0.0, "v": 1.0},
            lambda y: {"v": -y["x"], "p": y["v"]},
            "returned a dict of 'p', 'v'; expected a dict of 'v', 'x'",
        ),
        (1.0, lambda y: 1j * y, "expected an array or number"),
    ],
)
def test_slopes_must_be_pytrees_like_the_state(start: Any, slope: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        solve.diffeqsolve(lambda t, y, _: slope(y), solve.Tsit5(), 0.0, 1.0, 0.1, start)
    with pytest.raises(ShapeError, match=message):
        solve.fixed_point(lambda y, _: slope(y), solve.FixedPointIteration(), start)
    with pytest.raises(ShapeError, match=message):
        solve.linear_solve(slope, start, solve.GMRES())


@pytest.mark.parametrize("value", [lambda y: y > 1.5, lambda y: dnp.stack([y, y]), lambda y: 1j * y])
def test_events_must_be_real_scalars(value: Any) -> None:
    with pytest.raises(DTypeError, match=r"event returned an array of dtype .*; expected a real scalar that changes its sign"):
        solve.diffeqsolve(lambda t, y, _: y, solve.Tsit5(), 0.0, 1.0, 0.1, 1.0, event=solve.Event(lambda t, y, _: value(y)))

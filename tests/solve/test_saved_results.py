"""Results of `dlc.solve.diffeqsolve` at times, at steps and between them; reasons for the end; adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import random, solve
from dlc.solve import RESULTS, SaveAt

ADAPTIVE = solve.PIDController(1e-9, 1e-11)
START = np.array([1.0, 0.0])


def oscillator(t: Any, y: Any, frequency: Any) -> Any:
    """Return the slope of (cos(ωt), -ω sin(ωt))."""
    return {"x": y["v"], "v": -(frequency**2) * y["x"]}


def oscillate(y: Any, saveat: SaveAt, frequency: Any = 2.0, end: float = 3.0, **options: Any) -> Any:
    start = {"x": y[0], "v": y[1]}
    options = {"stepsize_controller": ADAPTIVE, "max_steps": 200} | options
    return solve.diffeqsolve(oscillator, solve.Tsit5(), 0.0, end, None, start, frequency, saveat=saveat, **options)


def test_times_and_steps() -> None:
    """All kinds of times in one program, against the exact solution; unused entries are infinite."""
    times = np.array([0.5, 1.0, 2.5])
    kinds = {
        "all": SaveAt(t0=True, t1=True, ts=times),
        "steps": SaveAt(t0=True, steps=True),
        "some": SaveAt(t1=True, steps=7),
        "values": SaveAt(t0=True, steps=True, fn=lambda t, y, frequency: y["x"] * frequency + t),
    }
    results = dlc.jit(lambda y: {name: oscillate(y, saveat) for name, saveat in kinds.items()})(START)
    count = int(results["all"].stats["num_accepted_steps"])
    np.testing.assert_array_equal(results["all"].ts, [0, 0.5, 1, 2.5, 3])
    np.testing.assert_allclose(results["all"].ys["x"], np.cos(2 * np.asarray(results["all"].ts)), atol=1e-7)
    ends = np.asarray(results["steps"].ts)
    assert ends.shape == (201,) and ends[0] == 0 and ends[count] == 3 and np.all(np.isinf(ends[count + 1 :]))
    np.testing.assert_allclose(np.asarray(results["steps"].ys["x"])[: count + 1], np.cos(2 * ends[: count + 1]), atol=1e-7)
    assert np.all(np.isinf(np.asarray(results["steps"].ys["v"])[count + 1 :]))
    some = np.asarray(results["some"].ts)
    used = [*ends[7 : count + 1 : 7], *([3.0] if count % 7 else [])]
    assert some.shape == (29,)
    np.testing.assert_array_equal(some, [*used, *[np.inf] * (29 - len(used))])
    np.testing.assert_allclose(np.asarray(results["some"].ys["x"])[: len(used)], np.cos(2 * np.array(used)), atol=1e-7)
    values = np.asarray(results["values"].ys)
    np.testing.assert_allclose(values[: count + 1], 2 * np.cos(2 * ends[: count + 1]) + ends[: count + 1], atol=1e-6)
    assert np.all(np.isinf(values[count + 1 :]))


def test_dense_output() -> None:
    """Dense output evaluated outside of the program, in it, in batches and backward; and its derivative."""

    def run(y: Any, frequency: Any) -> Any:
        return oscillate(y, SaveAt(dense=True), frequency)

    solution, times = dlc.jit(run)(START, np.float64(2)), np.linspace(0, 3, 20)
    assert solution.ts is None and solution.ys is None and solution.succeeded
    inside = dlc.jit(dlc.vmap(lambda t: solution.evaluate(t)["x"]))(times)
    np.testing.assert_allclose(inside, np.cos(2 * times), atol=1e-6)
    change = solution.evaluate(0.5, 1.5)
    np.testing.assert_allclose(change["x"], np.cos(3) - np.cos(1), atol=1e-6)
    frequencies = np.array([1.0, 2.0, 5.0])
    batch = dlc.jit(dlc.vmap(lambda w: run(START, w).evaluate(1.1)["x"]), target="reference")(frequencies)
    np.testing.assert_allclose(batch, np.cos(1.1 * frequencies), atol=1e-6)
    back = dlc.jit(lambda y: oscillate(y, SaveAt(dense=True), end=-3.0), target="reference")(START)
    np.testing.assert_allclose(back.evaluate(-1.3)["x"], np.cos(2.6), atol=1e-6)
    by_frequency = dlc.jit(dlc.grad(lambda w: run(START, w).evaluate(1.1)["x"]), target="reference")(np.float64(2))
    np.testing.assert_allclose(by_frequency, -1.1 * np.sin(2.2), atol=1e-5)
    with pytest.raises(dlc.DlcError, match=r"no dense output; call diffeqsolve with SaveAt\(dense=True\)"):
        dlc.jit(lambda y: oscillate(y, SaveAt(t1=True)).evaluate(1.0))(START)
    with pytest.raises(dlc.DlcError, match="saveat saves nothing"):
        oscillate(START, SaveAt())
    with pytest.raises(dlc.DlcError, match=r"saveat\.steps = -2; expected True, or n for every n-th step"):
        oscillate(START, SaveAt(steps=-2))


def test_derivatives_of_saved_values() -> None:
    """Entries that are not used have no derivative, although `fn` has none at infinity."""

    def total(frequency: Any) -> Any:
        saveat = SaveAt(t0=True, steps=True, t1=True, fn=lambda t, y, w: dnp.sqrt(2 + y["x"]))
        solution = oscillate(START, saveat, frequency, end=1.0, max_steps=60)
        return dnp.where(solution.ts == 1.0, solution.ys, 0).sum(), solution.result == RESULTS.successful

    value, is_successful = dlc.jit(total)(np.float64(2))
    assert is_successful and value == pytest.approx(np.sqrt(2 + np.cos(2)))
    by_frequency = dlc.jit(dlc.grad(lambda w: total(w)[0]))(np.float64(2))
    np.testing.assert_allclose(by_frequency, -np.sin(2) / (2 * np.sqrt(2 + np.cos(2))), atol=1e-5)


def test_one_program_for_all_numbers_of_states() -> None:
    def run(y: Any) -> Any:
        decay = lambda t, y, _: -y  # noqa: E731
        saveat = SaveAt(t0=True, steps=True, dense=True)
        return solve.diffeqsolve(
            decay, solve.Dopri5(), 0.0, 1.0, None, y, saveat=saveat, stepsize_controller=ADAPTIVE, max_steps=40
        )

    compiled = dlc.jit(run, dynamic={"y": {0: "n"}})
    for size in (1, 5):
        y = np.arange(1.0, size + 1)
        np.testing.assert_allclose(compiled(y).evaluate(0.7), y * np.exp(-0.7), rtol=1e-6)


def test_steps_until_an_event() -> None:
    event = solve.Event(lambda t, y, _: y["x"])
    result = dlc.jit(lambda y: oscillate(y, SaveAt(t0=True, steps=True), event=event))(START)
    count = int(result.stats["num_accepted_steps"])
    assert RESULTS(result.result) is RESULTS.event_occurred and result.succeeded
    assert result.ts[count] == pytest.approx(np.pi / 4) and result.ys["x"][count] == pytest.approx(0, abs=1e-8)
    assert np.all(np.isinf(np.asarray(result.ts)[count + 1 :]))


def test_reasons_for_the_end() -> None:
    """A start or a slope that is not finite ends the integration at once, a singular solution after some rejected steps."""

    def run(y: Any, power: Any) -> Any:
        slope = lambda t, y, _: y**power  # noqa: E731
        return solve.diffeqsolve(slope, solve.Tsit5(), 0.0, 2.0, None, y, stepsize_controller=ADAPTIVE, max_steps=2000)

    starts, powers = np.array([1.0, np.nan, np.inf, 3.0, 0.0]), np.array([1.0, 1.0, 1.0, 2.0, -1.0])
    result = dlc.jit(dlc.vmap(run))(starts, powers)
    ends = [RESULTS(int(code)).name for code in np.asarray(result.result)]
    assert ends == ["successful", *["dt_min_reached"] * 4]
    steps = np.asarray(result.stats["num_steps"])
    assert np.all(steps[[1, 2, 4]] == 0) and steps[3] < 1000
    stopped = dlc.jit(lambda y: oscillate(y, SaveAt(t1=True), max_steps=5))(START)
    assert RESULTS(stopped.result) is RESULTS.max_steps_reached
    constant = dlc.jit(lambda y: solve.diffeqsolve(lambda t, y, _: y * y, solve.Heun(), 0.0, 5.0, 0.5, y))(np.float64(1e80))
    assert RESULTS(constant.result) is RESULTS.nonfinite and not constant.succeeded


@pytest.mark.parametrize(("method", "dt0", "accuracy"), [(solve.Bosh3(), None, 1e-3), (solve.Heun(), 0.05, 2e-2)])
def test_adjoints(method: Any, dt0: float | None, accuracy: float) -> None:
    """Checkpoints repeat the same steps: the gradients are equal."""

    def end(frequency: Any, adjoint: Any) -> Any:
        controller = solve.PIDController(1e-6, 1e-6) if dt0 is None else solve.ConstantStepSize()
        start = {"x": np.float64(1), "v": np.float64(0)}
        times = SaveAt(ts=np.array([0.5, 1.5]))
        return solve.diffeqsolve(
            oscillator, method, 0.0, 2.0, dt0, start, frequency, saveat=times, stepsize_controller=controller,
            adjoint=adjoint, max_steps=120,
        ).ys["x"].sum()  # fmt: skip

    adjoints = solve.DirectAdjoint(), solve.RecursiveCheckpointAdjoint()
    direct, repeated = dlc.jit(lambda w: [dlc.grad(end)(w, adjoint) for adjoint in adjoints])(np.float64(2))
    np.testing.assert_allclose(direct, -(0.5 * np.sin(1) + 1.5 * np.sin(3)), atol=accuracy)
    np.testing.assert_allclose(repeated, direct, rtol=1e-12)


def test_brownian_tree() -> None:
    """The path has independent increments of the right variance, and is the same for all steps."""
    keys, times = np.asarray(random.split(random.key(3), 4000)), np.array([0.0, 0.3, 0.5, 0.9, 1.0])

    def path(key: Any) -> Any:
        tree = solve.VirtualBrownianTree(0.0, 1.0, 1e-3, (), key)
        return dlc.vmap(tree.evaluate)(times)

    paths = np.asarray(dlc.jit(dlc.vmap(path))(keys))
    np.testing.assert_array_equal(paths[:, 0], 0)
    increments = np.diff(paths, axis=1)
    np.testing.assert_allclose(np.cov(increments.T), np.diag(np.diff(times)), atol=0.03)
    with pytest.raises(dlc.DlcError, match=r"t0 = 0\.0, t1 = 1\.0, tol = 0; expected t0 < t1 and tol > 0"):
        solve.VirtualBrownianTree(0.0, 1.0, 0, (), keys[0]).evaluate(np.float64(0.5))


def test_adaptive_steps_with_noise() -> None:
    """Geometric Brownian motion in the sense of Stratonovich is exp(μ t + σ w)."""

    def run(key: Any, tolerance: Any) -> Any:
        tree = solve.VirtualBrownianTree(0.0, 1.0, 1e-5, (), key)
        terms = solve.MultiTerm(solve.ODETerm(lambda t, y, _: 0.3 * y), solve.ControlTerm(lambda t, y, _: 0.5 * y, tree))
        controller = solve.PIDController(tolerance, tolerance, pcoeff=0.1, icoeff=0.3)
        solution = solve.diffeqsolve(terms, solve.Heun(), 0.0, 1.0, 0.1, np.float64(1), stepsize_controller=controller)
        return solution.ys[0], dnp.exp(0.3 + 0.5 * tree.evaluate(np.float64(1))), solution.stats["num_steps"]

    keys = np.asarray(random.split(random.key(4), 50))
    batch = dlc.jit(dlc.vmap(run, in_axes=(0, None)))
    errors, steps = [], []
    for tolerance in (1e-2, 1e-4):
        ends, exact, num_steps = (np.asarray(v) for v in batch(keys, np.float64(tolerance)))
        errors.append(np.abs(ends - exact).mean())
        steps.append(num_steps.mean())
    assert errors[1] < errors[0] / 5 and errors[1] < 2e-3 and steps[1] > 3 * steps[0]

"""Compare random loops with small states, their derivatives and their batches, with Python loops over NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import lax
from tests.fuzz.random_loops import Interpreter, LaxControl, PlainControl, RandomLoops, State, plain_update, traced_update
from tests.fuzz.trials import Trial, TrialOutcome, run_checks, trial_outcomes

TARGETS = ("cpu", "reference")
TIMEOUT_SECONDS = 120
# Sizes of batches: one lane, less than a vector, and more than two vectors.
BATCHES = (1, 5, 27)
# Functions are accurate to a few ulp, which a step may amplify.
_TOLERANCE, _DERIVATIVE_TOLERANCE = 1e-8, 1e-3
# The relative change of inputs that shows how a program amplifies rounding errors, and the factor allowed for their number.
_PERTURBATIONS, _AMPLIFICATION = (1e-13, -1e-13, 1e-14), 100.0
# A larger change of results means that the program amplifies single rounding errors to any size: results are not compared.
_MAX_COMPARED_ROUNDING = 1e-5
# The steps of finite differences. If their results differ, the program is not smooth there, and is skipped.
_DIFFERENCE_STEPS = (1e-5, 1e-6)
# The parts of a state with derivatives.
_SMOOTH = ("a", "b", "x", "m", "y")
_SMOOTH_POSITIONS = tuple(State._fields.index(n) for n in _SMOOTH)
# The number of seeds per check of the gradient of a batch, which compiles two more programs.
_SEEDS_PER_BATCH_GRADIENT = 3


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and a description of its failures or None."""
    return run_checks(RandomLoops(trial.seed), trial, (_check_results, _check_batch, _check_derivatives, _check_batch_gradient))


class _PerturbedNumpy:
    """NumPy, whose functions that round differ by rounding errors at each call."""

    def __init__(self, perturbation: float) -> None:
        self._factor = 1 + perturbation

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def sin(self, x: Any) -> Any:
        return np.sin(x) * self._factor

    def divide(self, x: Any, y: Any) -> Any:
        return np.divide(x, y) * self._factor

    def tanh(self, x: Any) -> Any:
        return np.tanh(x) * self._factor


def _plain(program: RandomLoops, inputs: State) -> State:
    return Interpreter(np, PlainControl(), plain_update).run(program.body, inputs)


def _perturbed_results(program: RandomLoops, inputs: State) -> list[State]:
    """Return results with rounding errors in the inputs and in each step, which a chaotic program amplifies."""
    interpreters = [(Interpreter(_PerturbedNumpy(p), PlainControl(), plain_update), p) for p in _PERTURBATIONS]
    return [interpreter.run(program.body, _perturbed(inputs, p)) for interpreter, p in interpreters]


def _traced(program: RandomLoops, is_forward: bool = False) -> Callable[..., Any]:
    interpreter = Interpreter(dnp, LaxControl(lax, is_forward), traced_update)
    return lambda *inputs: interpreter.run(program.body, State(*inputs))


@lru_cache(maxsize=1)
def _gradient(program: RandomLoops, target: str) -> Callable[..., Any]:
    """Return the compiled gradient of the loss, which two checks call."""
    function = _traced(program)
    gradient = dlc.grad(lambda *s: _loss(function(*s)), argnums=_SMOOTH_POSITIONS)
    return dlc.jit(gradient, target=target, num_threads=1, cache=False)


def _check_results(program: RandomLoops, seed: int, target: str) -> str | None:
    inputs = program.inputs(seed)
    results = dlc.jit(_traced(program), target=target, num_threads=1, cache=False)(*inputs)
    return _difference(program, inputs, results)


def _check_batch(program: RandomLoops, seed: int, target: str) -> str | None:
    lanes = [program.inputs(seed + k) for k in range(BATCHES[seed % len(BATCHES)])]
    inputs = [np.stack(values) for values in zip(*lanes, strict=True)]
    results = dlc.jit(dlc.vmap(_traced(program)), target=target, num_threads=1, cache=False)(*inputs)
    for k, lane in enumerate(lanes):
        result = [np.asarray(values)[k] for values in results]
        mismatch = _difference(program, lane, result)
        if mismatch is not None:
            return f"lane {k}: {mismatch}"
    return None


def _check_derivatives(program: RandomLoops, seed: int, target: str) -> str | None:
    """Compare the gradient and the derivative along a direction with finite differences."""
    inputs, rng = program.inputs(seed), np.random.default_rng(seed)

    directions = {name: rng.uniform(-1, 1, np.shape(getattr(inputs, name))) for name in _SMOOTH}

    def moved(step: float) -> float:
        return float(
            _loss(_plain(program, inputs._replace(**{n: getattr(inputs, n) + step * d for n, d in directions.items()})))
        )

    expected, other = ((moved(h) - moved(-h)) / (2 * h) for h in _DIFFERENCE_STEPS)
    if not abs(expected - other) <= 1e-3 * (1 + abs(expected)):
        return None
    gradient = _gradient(program, target)

    def along_directions(inputs: State) -> float:
        return sum(float(np.sum(np.asarray(g) * directions[n])) for n, g in zip(_SMOOTH, gradient(*inputs), strict=True))

    reverse = along_directions(inputs)

    forward_function = _traced(program, is_forward=True)

    def along(*values: Any) -> Any:
        return _loss(forward_function(*inputs._replace(**dict(zip(_SMOOTH, values, strict=True)))))

    primals = tuple(getattr(inputs, n) for n in _SMOOTH)
    derivative = dlc.jit(lambda x, v: dlc.jvp(along, x, v), target=target, num_threads=1, cache=False)
    _, forward = derivative(primals, tuple(directions.values()))
    if not abs(reverse - float(forward)) <= _TOLERANCE * (1 + abs(reverse)):
        return f"gradient: {reverse!r}, jvp: {float(forward)!r}"
    if abs(along_directions(_perturbed(inputs)) - reverse) > _DERIVATIVE_TOLERANCE * (1 + abs(reverse)):
        # The derivative changes within rounding errors, such as that of a sine of a large number.
        return None
    if not abs(reverse - expected) <= _DERIVATIVE_TOLERANCE * (1 + abs(expected)):
        return f"derivative: {reverse!r}, finite differences {expected!r}"
    return None


def _check_batch_gradient(program: RandomLoops, seed: int, target: str) -> str | None:
    """Compare the gradient of a batch, which may be one kernel with its loop, with the gradients of its elements."""
    function = _traced(program)
    if seed % _SEEDS_PER_BATCH_GRADIENT or target == "reference":
        return None
    lanes = [program.inputs(seed + k) for k in range(max(BATCHES))]
    inputs = [np.stack(values) for values in zip(*lanes, strict=True)]

    def total(*batch: Any) -> Any:
        return dlc.vmap(lambda *s: _loss(function(*s)))(*batch).sum()

    results = dlc.jit(dlc.grad(total, argnums=_SMOOTH_POSITIONS), target=target, num_threads=1, cache=False)(*inputs)
    single = _gradient(program, target)
    for k, lane in enumerate(lanes):
        for name, result, want, other in zip(_SMOOTH, results, single(*lane), single(*_perturbed(lane)), strict=True):
            got, want, other = np.asarray(result)[k], np.asarray(want), np.asarray(other)
            bound = _TOLERANCE * (1 + np.abs(want)) + _AMPLIFICATION * np.max(np.abs(other - want), initial=0.0)
            if not np.all(np.abs(got - want) <= bound):
                return f"lane {k}, {name}: {got!r}, expected {want!r}"
    return None


def _loss(s: State) -> Any:
    return s.a + 2 * s.b + s.x.sum() + s.m[0, 1] + (s.y * s.y).sum()


def _perturbed(inputs: State, perturbation: float = _PERTURBATIONS[0]) -> State:
    """Return inputs that differ by rounding errors."""
    factor = 1 + perturbation
    return inputs._replace(a=inputs.a * factor, b=inputs.b * factor, m=inputs.m * factor)


def _difference(program: RandomLoops, inputs: State, results: Any) -> str | None:
    """Return a difference from the plain program that exceeds what rounding explains."""
    expected = _plain(program, inputs)
    if _difference_beyond(results, expected, [0.0] * len(expected)) is None:
        return None
    perturbed = _perturbed_results(program, inputs)
    roundings = [
        max(np.max(np.abs(np.asarray(other).astype(np.float64) - want), initial=0.0) for other in others)
        for want, *others in zip(expected, *perturbed, strict=True)
    ]
    if not all(rounding <= _MAX_COMPARED_ROUNDING for rounding in roundings):
        # If one result of a program is chaotic, the others may be: none is compared.
        return None
    return _difference_beyond(results, expected, roundings)


def _difference_beyond(results: Any, expected: State, roundings: Sequence[float]) -> str | None:
    """Return a difference of results that exceeds the tolerance, given changes of each result by rounding errors."""
    for name, got, want, rounding in zip(State._fields, results, expected, roundings, strict=True):
        got, want = (np.asarray(x).astype(np.float64) for x in (got, want))
        bound = _TOLERANCE * (1 + np.abs(want)) + _AMPLIFICATION * rounding
        if got.shape != want.shape or not np.all(np.abs(got - want) <= bound):
            return f"{name}: {got!r}, expected {want!r}"
    return None


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("loops", s, (target,) if target else TARGETS) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)

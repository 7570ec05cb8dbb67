"""Compare random loops with small states, their derivatives and their batches, with Python loops over NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import lax
from tests.fuzz.random_loops import Interpreter, LaxControl, PlainControl, RandomLoops, State, plain_update, traced_update
from tests.fuzz.trials import Trial, TrialOutcome, compared, run_checks, trial_outcomes

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
# The lanes of a batch whose gradients are compared: in the first vector, and the last one, which is not full.
_COMPARED_LANES = (0, 9, 26)


def run(trial: Trial) -> tuple[str, str | None]:
    """Run one check of a program on each target; return its outcome, and a description of its failures or None.

    Compilation takes nearly all of the time. One check per program tests more programs in the same time than all checks.
    """
    rng = random.Random(trial.seed)
    failures: list[str] = []
    for target in TARGETS:
        check = rng.choices(list(_CHECKS), [frequency for frequency, _ in _CHECKS.values()])[0]
        if target in trial.targets:
            program = RandomLoops(trial.seed, _CHECKS[check][1], has_dynamic_sizes=check is _check_results)
            _, failure = run_checks(program, Trial(trial.fuzzer, trial.seed, (target,)), (check,))
            failures += [failure] if failure else []
    return compared(failures)


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


def _gradient_of(program: RandomLoops, is_forward: bool = False) -> Callable[..., Any]:
    function = _traced(program, is_forward)
    return dlc.grad(lambda *s: _loss(function(*s)), argnums=_SMOOTH_POSITIONS)


def _compile(function: Callable[..., Any], target: str, **options: Any) -> Callable[..., Any]:
    return dlc.jit(function, target=target, num_threads=1, cache=False, **options)


def _expected(program: RandomLoops, lanes: Sequence[State]) -> list[State] | None:
    """Return the results of the plain program, or None if an index of a lane is out of range."""
    try:
        return [_plain(program, lane) for lane in lanes]
    except IndexError:
        return None


def _is_refused(function: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    try:
        function(*inputs)
    except dlc.DlcError as error:
        return "is outside axis" in str(error)
    return False


def _check_results(program: RandomLoops, seed: int, target: str) -> str | None:
    """Compare results; odd seeds donate the arrays of the state."""
    inputs, function = program.inputs(seed), _traced(program)

    def call(a: Any, b: Any, k: Any, x: Any, m: Any, p: Any, y: Any) -> Any:
        return function(a, b, k, x, m, p, y)

    compiled = _compile(call, target, donate_argnames=("x", "m", "y") if seed % 2 else ())
    copies = inputs._replace(x=inputs.x.copy(), m=inputs.m.copy(), y=inputs.y.copy())
    if _expected(program, [inputs]) is None:
        return None if _is_refused(compiled, copies) else "an index out of range is not refused"
    try:
        results = compiled(*copies)
    except dlc.DlcError as error:
        if "do not donate it" not in str(error):
            raise
        results = _compile(call, target)(*copies)
    return _difference(program, inputs, results)


def _check_batch(program: RandomLoops, seed: int, target: str) -> str | None:
    lanes = [program.inputs(seed + k) for k in range(BATCHES[seed % len(BATCHES)])]
    inputs = [np.stack(values) for values in zip(*lanes, strict=True)]
    compiled = _compile(dlc.vmap(_traced(program)), target)
    if _expected(program, lanes) is None:
        return None if _is_refused(compiled, inputs) else "an index out of range is not refused"
    results = compiled(*inputs)
    for k, lane in enumerate(lanes):
        result = [np.asarray(values)[k] for values in results]
        mismatch = _difference(program, lane, result)
        if mismatch is not None:
            return f"lane {k}: {mismatch}"
    return None


def _directions(inputs: State, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-1, 1, np.shape(getattr(inputs, name))) for name in _SMOOTH}


def _moved(inputs: State, directions: dict[str, Any], step: float) -> State:
    return inputs._replace(**{name: getattr(inputs, name) + step * d for name, d in directions.items()})


def _difference_quotient(value: Callable[[State], float], inputs: State, directions: dict[str, Any]) -> float | None:
    """Return the derivative of a function along a direction by finite differences, or None where it is not smooth."""
    expected, other = (
        (value(_moved(inputs, directions, h)) - value(_moved(inputs, directions, -h))) / (2 * h) for h in _DIFFERENCE_STEPS
    )
    return expected if abs(expected - other) <= 1e-3 * (1 + abs(expected)) else None


def _check_gradient(program: RandomLoops, seed: int, target: str) -> str | None:
    return _check_derivative(program, seed, target, "reference")


def _check_tangent(program: RandomLoops, seed: int, target: str) -> str | None:
    return _check_derivative(program, seed, "reference", target)


def _check_derivative(program: RandomLoops, seed: int, reverse_target: str, forward_target: str) -> str | None:
    """Compare the gradient, the derivative along a direction and finite differences."""
    inputs = program.inputs(seed)
    if _expected(program, [inputs]) is None:
        return None
    directions = _directions(inputs, seed)
    expected = _difference_quotient(lambda s: float(_loss(_plain(program, s))), inputs, directions)
    if expected is None:
        return None
    gradient = _compile(_gradient_of(program), reverse_target)

    def along_directions(inputs: State) -> float:
        return sum(float(np.sum(np.asarray(g) * directions[n])) for n, g in zip(_SMOOTH, gradient(*inputs), strict=True))

    reverse = along_directions(inputs)
    forward_function = _traced(program, is_forward=True)

    def along(*values: Any) -> Any:
        return _loss(forward_function(*inputs._replace(**dict(zip(_SMOOTH, values, strict=True)))))

    primals = tuple(getattr(inputs, n) for n in _SMOOTH)
    _, forward = _compile(lambda x, v: dlc.jvp(along, x, v), forward_target)(primals, tuple(directions.values()))
    rounding = abs(along_directions(_perturbed(inputs)) - reverse)
    if not abs(reverse - float(forward)) <= _TOLERANCE * (1 + abs(reverse)) + _AMPLIFICATION * rounding:
        return f"gradient: {reverse!r}, jvp: {float(forward)!r}"
    if rounding > _DERIVATIVE_TOLERANCE * (1 + abs(reverse)):
        # The derivative changes within rounding errors, such as that of a sine of a large number.
        return None
    if not abs(reverse - expected) <= _DERIVATIVE_TOLERANCE * (1 + abs(expected)):
        return f"derivative: {reverse!r}, finite differences {expected!r}"
    return None


def _check_batch_gradient(program: RandomLoops, seed: int, target: str) -> str | None:
    """Compare the gradient of a batch, which may be one kernel with its loop, with the gradients of its elements."""
    function = _traced(program)
    lanes = [program.inputs(seed + k) for k in range(max(BATCHES))]
    if _expected(program, lanes) is None:
        return None
    inputs = [np.stack(values) for values in zip(*lanes, strict=True)]

    def total(*batch: Any) -> Any:
        return dlc.vmap(lambda *s: _loss(function(*s)))(*batch).sum()

    results = _compile(dlc.grad(total, argnums=_SMOOTH_POSITIONS), target)(*inputs)
    single = _compile(_gradient_of(program), "reference")
    for k in _COMPARED_LANES:
        for name, result, want, other in zip(_SMOOTH, results, single(*lanes[k]), single(*_perturbed(lanes[k])), strict=True):
            got, want, other = np.asarray(result)[k], np.asarray(want), np.asarray(other)
            bound = _TOLERANCE * (1 + np.abs(want)) + _AMPLIFICATION * np.max(np.abs(other - want), initial=0.0)
            if not np.all(np.abs(got - want) <= bound):
                return f"lane {k}, {name}: {got!r}, expected {want!r}"
    return None


def _check_second_derivatives(program: RandomLoops, seed: int, target: str) -> str | None:
    """Compare the derivative of the gradient along a direction with finite differences of the gradient."""
    inputs = program.inputs(seed)
    if _expected(program, [inputs]) is None:
        return None
    directions, others = _directions(inputs, seed), _directions(inputs, seed + 1)
    gradient = _gradient_of(program, is_forward=True)

    def along(*values: Any) -> Any:
        return gradient(*inputs._replace(**dict(zip(_SMOOTH, values, strict=True))))

    compiled = _compile(lambda x, v: dlc.jvp(along, x, v), target)

    def along_others(inputs: State, order: int) -> float:
        results = compiled(tuple(getattr(inputs, n) for n in _SMOOTH), tuple(directions.values()))[order]
        return sum(float(np.sum(np.asarray(g) * others[n])) for n, g in zip(_SMOOTH, results, strict=True))

    expected = _difference_quotient(lambda s: along_others(s, 0), inputs, directions)
    got = along_others(inputs, 1)
    if expected is None or abs(along_others(_perturbed(inputs), 1) - got) > _DERIVATIVE_TOLERANCE * (1 + abs(got)):
        return None
    if not abs(got - expected) <= _DERIVATIVE_TOLERANCE * (1 + abs(expected)):
        return f"second derivative: {got!r}, finite differences {expected!r}"
    return None


# The relative frequency of a check, and the maximum depth of the loops of its programs: second derivatives of deep ones take
# seconds to compile.
_CHECKS = {
    _check_results: (3, 3),
    _check_batch: (3, 3),
    _check_gradient: (2, 3),
    _check_tangent: (2, 3),
    _check_batch_gradient: (2, 3),
    _check_second_derivatives: (1, 1),
}


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

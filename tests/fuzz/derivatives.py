"""Random functions and their derivatives: forward mode beside differences, reverse mode beside forward mode, second
derivatives, and gradients in lanes.

The programs of `dl` ops and those of loops and branches that the other fuzzers have, in turn, of floats of 64 bits.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.frontend.trace import Tracer
from dlc.ir import SSAValue, StringAttr
from dlc.passes.autodiff.rules import NO_DERIVATIVE
from tests.fuzz.drawing import random_program
from tests.fuzz.random_control import PLAIN, Interpreter, RandomControl
from tests.fuzz.random_program import RandomProgram
from tests.fuzz.supervise import supervised
from tests.ops.sample import F64

TARGETS = ("reference", "cpu")
SECONDS = 240
STEP = 1e-5
# How uncertain a difference may be, of a number of 1; where it is more uncertain it says nothing.
UNCERTAIN = 1e-3
# What has no derivative, and what the compiler makes when derivatives are done.
LEFT_OUT = {*NO_DERIVATIVE, dl.BitcastOp, dl.StopGradientOp, dl.WinogradInputOp, dl.WinogradOutputOp}


@dataclass(frozen=True)
class Trial:
    """A function and what to differentiate it on."""

    seed: int
    target: str = "reference"


@dataclass(frozen=True)
class Failure:
    """A function whose derivatives are wrong."""

    trial: Trial
    what: str

    def __str__(self) -> str:
        trial = self.trial
        command = f"python -m tests.fuzz derivatives --seed {trial.seed} --count 1 --target {trial.target}"
        return f"seed {trial.seed}: {self.what.strip()}\n  reproduce: {command}"


@dataclass(frozen=True)
class Function:
    """A function of arrays of f64 to some; `plain` is the same by NumPy."""

    point: list[Array]
    run: Callable[..., list[Any]]
    plain: Callable[..., list[Array]]


def function(seed: int) -> Function | None:
    """The function of a seed; None for one that is of no floats."""
    return (_control if seed % 2 else _program)(seed)


def _control(seed: int) -> Function | None:
    """A function of loops and branches."""
    program = RandomControl(seed, smooth=True)

    def runs(interpreter: Interpreter) -> Callable[..., list[Any]]:
        return lambda *inputs: interpreter.run(program.body, {}, inputs)

    return _of_floats(program.inputs, runs(Interpreter(dnp, lax)), runs(Interpreter(np, PLAIN)))


def _program(seed: int) -> Function | None:
    """A program of `dl` ops, of which only results that no narrower float is on the way to are kept."""
    program = random_program(seed, size=random.Random(seed).choice([1, 2, 4, 8]), dtype=F64)
    numbers = np.random.default_rng(seed)
    inputs = [x + numbers.uniform(-0.4, 0.4, x.shape) if x.dtype == F64 else x for x in program.inputs]
    rough = _rough(program)
    results = [k.value for k in program.results if k.value not in rough and not k.tracked.given]
    modes = [op.properties.get("mode") for op in program.block.ops]
    if program.ops & LEFT_OUT or StringAttr("mul") in modes:
        return None

    def run(*inputs: Any) -> list[Any]:
        known: dict[SSAValue, Any] = dict(zip(program.block.args, inputs, strict=True))
        for op in program.block.ops:
            known.update(zip(op.results, _again(program, op, known), strict=True))
        return [known[v] for v in results]

    plain = dlc.jit(target="reference", cache=False)(run)
    return _of_floats(inputs, run, plain)


def _rough(program: RandomProgram) -> set[SSAValue]:
    """The values that are computed from narrower floats than those of 64 bits, or that say how they are stored."""
    rough: set[SSAValue] = set()
    for known in program.values:
        narrow = is_float(element_type(known.dtype)) and known.dtype != F64
        if narrow or not rough.isdisjoint(getattr(known.value.owner, "operands", ())):
            rough.add(known.value)
    return rough


def _again(program: RandomProgram, op: Any, known: dict[SSAValue, Any]) -> Sequence[Any]:
    """The results of an op of a program in the function that is traced."""
    trace = next(v.owner for v in known.values() if isinstance(v, Tracer))
    if isinstance(op, dl.WeightOp):
        return [program.weights[op.symbol.root_reference.data]]
    values = {v: trace.value(known[v]).value for v in op.operands}
    return trace.insert(op.clone(values))


def _of_floats(inputs: Sequence[Array], run: Callable[..., Any], plain: Callable[..., Any]) -> Function | None:
    """The function of the inputs of f64 alone, to its results of them."""
    moving = [i for i, x in enumerate(inputs) if x.dtype == F64]

    def of(function: Callable[..., Any]) -> Callable[..., list[Any]]:
        def call(*given: Any) -> list[Any]:
            arguments = list(inputs)
            for i, x in zip(moving, given, strict=True):
                arguments[i] = x
            return [r for r in function(*arguments) if r.dtype == F64]

        return call

    made = Function([inputs[i] for i in moving], of(run), of(plain))
    return made if moving and made.plain(*made.point) else None


class Checks:
    """What is asked of the derivatives of a function; `wrong` is what was answered wrong."""

    def __init__(self, made: Function, target: str, seed: int) -> None:
        self.made = made
        self.numbers = np.random.default_rng(seed)
        self.compiled = dlc.jit(target=target, num_threads=1, cache=False)
        self.directions = [self._draw(x.shape) for x in made.point]
        with np.errstate(all="ignore"):
            self.weights = [self._draw(np.shape(r)) for r in made.plain(*made.point)]
        self.wrong: list[str] = []

    def _draw(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self.numbers.uniform(-1, 1, shape))

    def first(self) -> list[Array] | None:
        """Forward mode beside differences of NumPy's results, reverse mode beside forward mode; the gradient."""
        made = self.made

        @self.compiled
        def both(point: Any, directions: Any, weights: Any) -> Any:
            _, tangents = dlc.jvp(made.run, point, directions)
            _, pullback = dlc.vjp(made.run, *point)
            return tangents, pullback(weights)

        tangents, cotangents = both(tuple(made.point), tuple(self.directions), self.weights)
        self._differences("forward mode", made.plain, tangents)
        self._equal("reverse mode", _products(cotangents, self.directions), _products(self.weights, tangents))
        return cotangents

    def second(self) -> None:
        """The tangent of the gradient beside differences of it, and beside the gradient of the tangent."""
        made = self.made

        def loss(*point: Any) -> Any:
            return sum(dnp.sum(w * r) for w, r in zip(self.weights, made.run(*point), strict=True))

        every = tuple(range(len(made.point)))
        gradient = dlc.grad(loss, every)

        def slope(*point: Any) -> Any:
            return dlc.jvp(loss, point, self.directions)[1]

        self.compiled_gradient = self.compiled(lambda *point: gradient(*point))

        @self.compiled
        def second(*point: Any) -> Any:
            return dlc.hvp(loss, point, self.directions), dlc.grad(slope, every)(*point)

        over_reverse, over_forward = second(*made.point)
        over_reverse = [over_reverse] if len(made.point) == 1 else over_reverse
        self._differences("forward over reverse mode", self.compiled_gradient, over_reverse)
        for a, b in zip(over_reverse, over_forward, strict=True):
            self._equal("reverse over forward mode", np.asarray(b).ravel(), np.asarray(a).ravel(), summed=False)

    def lanes(self, gradient: Sequence[Array]) -> None:
        """The gradient of each lane beside the gradient."""
        made = self.made

        @self.compiled
        def lanes(*points: Any) -> Any:
            def pull(*point: Any) -> Any:
                return dlc.vjp(made.run, *point)[1](self.weights)

            return dlc.vmap(pull)(*points)

        moved = [x + 0.1 for x in made.point]
        batched = lanes(*(np.stack([x, y]) for x, y in zip(made.point, moved, strict=True)))
        single = self.compiled(lambda *point: dlc.vjp(made.run, *point)[1](self.weights))(*moved)
        for b, a, m in zip(batched, gradient, single, strict=True):
            both = np.stack([np.asarray(a), np.asarray(m)])
            self._equal("gradients in lanes", np.asarray(b).ravel(), both.ravel(), summed=False)

    def _differences(self, what: str, function: Callable[..., Any], tangents: Sequence[Array]) -> None:
        made = self.made

        def along(step: float) -> list[Array]:
            with np.errstate(all="ignore"):
                ends = [function(*(x + s * d for x, d in zip(made.point, self.directions, strict=True))) for s in (step, -step)]
            return [(np.asarray(a) - np.asarray(b)) / (2 * step) for a, b in zip(*ends, strict=True)]

        for k, (got, near, far) in enumerate(zip(tangents, along(STEP), along(2 * STEP), strict=True)):
            got, scale = np.asarray(got), 1 + float(np.max(np.abs(near), initial=0, where=np.isfinite(near)))
            with np.errstate(all="ignore"):
                allowed = 2 * np.abs(near - far) + 1e-6 * scale
                # Nothing times a slope that is infinite or undefined is NaN where nothing moves.
                vacuous = np.isnan(got) & (near == 0)
                wrong = ~(np.abs(got - near) <= allowed) & (allowed < UNCERTAIN * scale) & ~vacuous
            self._report(f"{what}, result {k}", wrong, got, near)

    def _equal(self, what: str, got: Array, expected: Array, summed: bool = True) -> None:
        """The same numbers, or the same sum of numbers, but for roundings."""
        with np.errstate(all="ignore"):
            scale = 1 + max((float(np.max(np.abs(x), initial=0)) for x in (got, expected)), default=0.0)
            if summed:
                got, expected = np.asarray([np.sum(got)]), np.asarray([np.sum(expected)])
            wrong = ~((np.abs(got - expected) <= 1e-7 * scale) | (np.isnan(expected) & np.isnan(got)) | (got == expected))
        if np.isfinite(expected).all():
            self._report(what, wrong, got, expected)

    def _report(self, what: str, wrong: Array, got: Array, expected: Array) -> None:
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            count = f"{int(wrong.sum())} of {wrong.size}"
            self.wrong.append(f"{what}: {count} differ; at {list(place)} {got[place]}, expected {expected[place]}")


def _products(xs: Sequence[Array], ys: Sequence[Array]) -> Array:
    """All products of elements of one with those of the other."""
    with np.errstate(all="ignore"):
        parts = [(np.asarray(x) * np.asarray(y)).ravel() for x, y in zip(xs, ys, strict=True)]
    return np.concatenate([np.zeros(0), *parts])


def run(trial: Trial) -> list[Failure]:
    """What is wrong with the derivatives of a function."""
    try:
        made = function(trial.seed)
        if made is None:
            return []
        checks = Checks(made, trial.target, trial.seed)
        gradient = checks.first()
        # They cost more than the rest, so that every other function has them, in turn.
        match trial.seed // 2 % 4:
            case 0:
                checks.second()
            case 1:
                checks.lanes(gradient)
            case _:
                pass
    except Exception:
        return [Failure(trial, traceback.format_exc())]
    return [Failure(trial, wrong) for wrong in checks.wrong]


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """The functions of `count` seeds from `seed` on."""
    return [Trial(s, target or TARGETS[s % 16 == 15]) for s in range(seed, seed + count)]


def fuzz(chosen: Sequence[Trial], jobs: int, progress: Callable[[Trial], None] = lambda trial: None) -> Iterator[Failure]:
    """The failures of all trials, crashes and hangs among them; `progress` hears of every trial."""
    for outcome in supervised(run, chosen, jobs=jobs, seconds=SECONDS):
        progress(outcome.item)
        if outcome.death is not None:
            yield Failure(outcome.item, outcome.death)
            continue
        assert isinstance(outcome.result, list)
        yield from outcome.result

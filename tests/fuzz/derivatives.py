"""Random functions and their derivatives: forward mode beside differences, reverse mode beside forward mode, second
derivatives in both orders, and all of it in lanes beside one point after the other.

All that is asked of a function is one program, so that it is compiled once.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc.dialects.dl.base import Array
from tests.fuzz.functions import Function, function
from tests.fuzz.supervise import supervised

# The target of most functions, and that of some.
TARGETS = ("reference", "cpu")
SECONDS = 240
STEP = 1e-5
# Where a function is computed, in steps from its point along the directions; what differences over large and small steps
# differ by is how uncertain they are.
PLACES = (0, 1, -1, 2, -2, 0.01, -0.01, 5000)
# How uncertain a difference may be, of a number of 1; where it is more uncertain it says nothing.
UNCERTAIN = 1e-3


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


class Checks:
    """What is asked of the derivatives of a function; `wrong` is what was answered wrong."""

    def __init__(self, made: Function, target: str, seed: int) -> None:
        self.made = made
        self.numbers = np.random.default_rng(seed)
        self.compiled = dlc.jit(target=target, num_threads=1, cache=False)
        self.directions = [self._draw(x.shape) for x in made.point]
        self.points = [np.stack([x + k * STEP * d for k in PLACES]) for x, d in zip(made.point, self.directions, strict=True)]
        with np.errstate(all="ignore"):
            each = [made.plain(*(x[k] for x in self.points)) for k in range(len(PLACES))]
        self.values = [np.stack(results) for results in zip(*each, strict=True)]
        self.weights = [self._draw(v.shape[1:]) for v in self.values]
        self.wrong: list[str] = []

    def _draw(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self.numbers.uniform(-1, 1, shape))

    def ask(self) -> None:
        """Compares all that one program computes of the function at all places."""
        with np.errstate(all="ignore"):
            self._ask(*self.compiled(self._everything)(self.points, self.directions, self.weights))

    def _everything(self, points: Any, directions: Any, weights: Any) -> Any:
        """Tangents, the gradient and its tangent; results and the gradient in lanes; a slope and its gradient."""
        point = [x[0] for x in points]
        every = tuple(range(len(point)))

        def loss(*point: Any) -> Any:
            results = self.made.run(*point)
            return sum(dnp.sum(w * r) for w, r in zip(weights, results, strict=True)), results

        def gradient(*point: Any) -> Any:
            (_, results), cotangents = dlc.value_and_grad(loss, every, has_aux=True)(*point)
            return results, cotangents

        def slope(*point: Any) -> Any:
            return dlc.jvp(loss, point, directions, has_aux=True)[1]

        (_, cotangents), (tangents, curvature) = dlc.jvp(gradient, point, directions)
        return tangents, cotangents, curvature, dlc.vmap(gradient)(*points), dlc.value_and_grad(slope, every)(*point)

    def _ask(self, tangents: Any, cotangents: Any, over_reverse: Any, lanes: Any, over_forward: Any) -> None:
        values, gradients = lanes
        for k, (got, expected) in enumerate(zip(values, self.values, strict=True)):
            self._equal(f"result {k} in lanes", got, expected)
        for got, expected in zip(gradients, cotangents, strict=True):
            self._equal("the gradient in lanes", got[0], expected)
        self._differences("forward mode", tangents, self.values)
        self._differences("forward over reverse mode", over_reverse, gradients)
        along = _sum_of_products(self.weights, tangents)
        self._equal("reverse mode", _sum_of_products(cotangents, self.directions), along)
        self._equal("forward mode of a sum", over_forward[0], along)
        for got, expected in zip(over_forward[1], over_reverse, strict=True):
            self._equal("reverse over forward mode", got, expected, over_reverse)

    def _differences(self, what: str, tangents: Sequence[Array], values: Sequence[Array]) -> None:
        """Tangents beside differences of values at all places."""
        for k, (got, at) in enumerate(zip(tangents, values, strict=True)):
            near, far, nearest = ((at[i] - at[i + 1]) / ((PLACES[i] - PLACES[i + 1]) * STEP) for i in (1, 3, 5))
            scale = 1 + float(np.max(np.abs(near), initial=0, where=np.isfinite(near)))
            # What roundings of the values may hide.
            rounding = np.finfo(at.dtype).eps * np.abs(at[0]) / STEP
            allowed = 2 * (np.abs(near - far) + np.abs(near - nearest) + rounding) + 1e-6 * scale
            # Nothing times a slope that is infinite or undefined is NaN where nothing moves, and a rounding times it is infinite.
            vacuous = (np.isnan(got) & (near == 0)) | (~np.isfinite(got) & (not self.made.finite))
            wrong = ~(np.abs(got - near) <= allowed) & (allowed < UNCERTAIN * scale) & ~vacuous
            self._report(f"{what}, result {k}", wrong, got, near)

    def _equal(self, what: str, got: Array, expected: Array, among: Sequence[Array] = ()) -> None:
        """The same numbers, but for roundings, also of the largest `among` which they are computed; of numbers that are not
        finite nothing is said."""
        if np.isfinite(expected).all() and (self.made.finite or np.isfinite(got).all()):
            scale, largest = 1 + _largest((got, expected)), _largest(among)
            self._report(what, ~(np.abs(got - expected) <= 1e-7 * scale + 1e-12 * largest), got, expected)

    def _report(self, what: str, wrong: Array, got: Array, expected: Array) -> None:
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            count = f"{int(wrong.sum())} of {wrong.size}"
            self.wrong.append(f"{what}: {count} differ; at {list(place)} {got[place]}, expected {expected[place]}")


def _largest(xs: Sequence[Array]) -> float:
    """The largest magnitude of all; numbers that are not finite have none."""
    return max((float(np.max(np.abs(x), initial=0, where=np.isfinite(x))) for x in xs), default=0.0)


def _sum_of_products(xs: Sequence[Array], ys: Sequence[Array]) -> Array:
    """The sum of all products of elements of one with those of the other."""
    return np.asarray(sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True)))


def run(trial: Trial) -> list[Failure]:
    """What is wrong with the derivatives of a function."""
    try:
        checks = Checks(function(trial.seed), trial.target, trial.seed)
        checks.ask()
    except Exception:
        return [Failure(trial, traceback.format_exc())]
    return [Failure(trial, wrong) for wrong in checks.wrong]


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """The functions of `count` seeds from `seed` on."""
    return [Trial(s, target or TARGETS[s // 2 % 16 == 15]) for s in range(seed, seed + count)]


def fuzz(chosen: Sequence[Trial], jobs: int, progress: Callable[[Trial], None] = lambda trial: None) -> Iterator[Failure]:
    """The failures of all trials, crashes and hangs among them; `progress` hears of every trial."""
    for outcome in supervised(run, chosen, jobs=jobs, seconds=SECONDS):
        progress(outcome.item)
        if outcome.death is not None:
            yield Failure(outcome.item, outcome.death)
            continue
        assert isinstance(outcome.result, list)
        yield from outcome.result

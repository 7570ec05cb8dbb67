"""Check derivatives of random functions.

Forward mode is compared with finite differences, reverse mode with forward mode, second derivatives in both orders, and batched
derivatives with those of single points. All checks of a function are compiled as one program.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc.dialects.dl.base import Array
from tests.fuzz.functions import Function, random_function
from tests.fuzz.trials import Trial, TrialOutcome, compared, trial_outcomes

# The target of most functions, and of one in sixteen.
TARGETS = ("reference", "cpu")
TIMEOUT_SECONDS = 240
STEP = 1e-5
# Points at which a function is evaluated, in steps from its point along the directions. The spread of differences over large
# and small steps estimates their uncertainty.
OFFSETS = (0, 1, -1, 2, -2, 0.01, -0.01, 5000)
# A finite difference with a larger relative uncertainty is inconclusive.
MAX_UNCERTAINTY = 1e-3


class Checks:
    """The checks of a function's derivatives; `failures` describes those that failed."""

    def __init__(self, function: Function, target: str, seed: int) -> None:
        self.function = function
        self.rng = np.random.default_rng(seed)
        self.compiled = dlc.jit(target=target, num_threads=1, cache=False)
        self.directions = [self._draw(x.shape) for x in function.point]
        self.points = [
            np.stack([x + k * STEP * d for k in OFFSETS]) for x, d in zip(function.point, self.directions, strict=True)
        ]
        with np.errstate(all="ignore"):
            each = [function.plain(*(x[k] for x in self.points)) for k in range(len(OFFSETS))]
        self.values = [np.stack(results) for results in zip(*each, strict=True)]
        self.weights = [self._draw(v.shape[1:]) for v in self.values]
        self.failures: list[str] = []

    def _draw(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self.rng.uniform(-1, 1, shape))

    def run(self) -> None:
        """Run all checks with one compiled program."""
        with np.errstate(all="ignore"):
            self._compare(*self.compiled(self._compute_all)(self.points, self.directions, self.weights))

    def _compute_all(self, points: Any, directions: Any, weights: Any) -> Any:
        """Compute all derivatives in one traced function.

        These are tangents, gradients and tangents of gradients; batched results and gradients; a directional derivative and its
        gradient.
        """
        point = [x[0] for x in points]
        all_arguments = tuple(range(len(point)))

        def loss(*point: Any) -> Any:
            results = self.function.run(*point)
            return sum(dnp.sum(w * r) for w, r in zip(weights, results, strict=True)), results

        def gradient(*point: Any) -> Any:
            (_, results), cotangents = dlc.value_and_grad(loss, all_arguments, has_aux=True)(*point)
            return results, cotangents

        def slope(*point: Any) -> Any:
            return dlc.jvp(loss, point, directions, has_aux=True)[1]

        (_, cotangents), (tangents, curvature) = dlc.jvp(gradient, point, directions)
        return tangents, cotangents, curvature, dlc.vmap(gradient)(*points), dlc.value_and_grad(slope, all_arguments)(*point)

    def _compare(self, tangents: Any, cotangents: Any, over_reverse: Any, batched: Any, over_forward: Any) -> None:
        values, gradients = batched
        for k, (got, expected) in enumerate(zip(values, self.values, strict=True)):
            self._equal(f"batched result {k}", got, expected)
        for got, expected in zip(gradients, cotangents, strict=True):
            self._equal("the batched gradient", got[0], expected)
        self._differences("forward mode", tangents, self.values)
        if self.function.moderate:
            self._differences("forward over reverse mode", over_reverse, gradients)
        directional = _sum_of_products(self.weights, tangents)
        self._equal("reverse mode", _sum_of_products(cotangents, self.directions), directional)
        self._equal("forward mode of a sum", over_forward[0], directional)
        for got, expected in zip(over_forward[1], over_reverse, strict=True):
            self._equal("reverse over forward mode", got, expected, over_reverse)

    def _differences(self, label: str, tangents: Sequence[Array], values: Sequence[Array]) -> None:
        """Compare tangents with finite differences of values."""
        for k, (got, at) in enumerate(zip(tangents, values, strict=True)):
            difference, coarse_difference, fine_difference = (
                (at[i] - at[i + 1]) / ((OFFSETS[i] - OFFSETS[i + 1]) * STEP) for i in (1, 3, 5)
            )
            scale = 1 + float(np.max(np.abs(difference), initial=0, where=np.isfinite(difference)))
            # The error of a difference that is due to rounding of the values.
            rounding = np.finfo(at.dtype).eps * np.abs(at[0]) / STEP
            allowed = (
                2 * (np.abs(difference - coarse_difference) + np.abs(difference - fine_difference) + rounding) + 1e-6 * scale
            )
            # Zero times an infinite or undefined slope is NaN, and a rounding error times it is infinite.
            vacuous = (np.isnan(got) & (difference == 0)) | (~np.isfinite(got) & (not self.function.finite))
            mismatch = ~(np.abs(got - difference) <= allowed) & (allowed < MAX_UNCERTAINTY * scale) & ~vacuous
            self._report(f"{label}, result {k}", mismatch, got, difference)

    def _equal(self, label: str, got: Array, expected: Array, related: Sequence[Array] = ()) -> None:
        """Compare finite results up to rounding, relative to the largest of them and of the `related` values."""
        if np.isfinite(expected).all() and (self.function.finite or np.isfinite(got).all()):
            scale, largest = 1 + _largest((got, expected)), _largest(related)
            self._report(label, ~(np.abs(got - expected) <= 1e-7 * scale + 1e-12 * largest), got, expected)

    def _report(self, label: str, mismatch: Array, got: Array, expected: Array) -> None:
        if mismatch.any():
            index = tuple(int(i) for i in np.argwhere(mismatch)[0])
            count = f"{int(mismatch.sum())} of {mismatch.size}"
            self.failures.append(f"{label}: {count} differ; at {list(index)} {got[index]}, expected {expected[index]}")


def _largest(xs: Sequence[Array]) -> float:
    """Return the largest finite magnitude."""
    return max((float(np.max(np.abs(x), initial=0, where=np.isfinite(x))) for x in xs), default=0.0)


def _sum_of_products(xs: Sequence[Array], ys: Sequence[Array]) -> Array:
    """Return the sum of the inner products of corresponding arrays."""
    return np.asarray(sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True)))


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and the wrong derivatives of its function or None."""
    try:
        checks = Checks(random_function(trial.seed), trial.target, trial.seed)
        checks.run()
    except Exception:
        return "failed", traceback.format_exc()
    return compared(checks.failures)


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("derivatives", s, (target or TARGETS[s // 2 % 16 == 15],)) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)

"""Runge-Kutta methods, explicit and diagonally implicit: tableaus, steps, and values between the ends of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import ml_dtypes
import numpy as np

from dlc import lax
from dlc.calculus.jacobians import jacfwd
from dlc.numpy import linalg, logical_not, stack, where
from dlc.solve.roots import dense_solve, is_small

__all__ = ["Bosh3", "Dopri5", "Euler", "Heun", "ImplicitEuler", "Kvaerno3", "Kvaerno5", "Method", "Midpoint", "Step", "Tsit5"]


class Step(NamedTuple):
    """A step: its end, the estimated error (None without an estimate), the slope at the end, and all slopes (stages, n)."""

    end: Any
    error: Any
    slope: Any
    slopes: Any


@dataclass(frozen=True)
class Method:
    """A Runge-Kutta method: y₁ = y₀ + h Σ bᵢ kᵢ with kᵢ = f(t + cᵢ h, y₀ + h Σⱼ aᵢⱼ kⱼ) for j ≤ i, and explicit k₁.

    Attributes:
        order: The order of convergence.
        nodes: c₂, c₃, …
        stages: The rows of a, from the second stage on, without the diagonal.
        weights: b.
        error_weights: b minus the weights of the embedded method; None without one.
        quartic_weights: The weights of the slopes in the quartic term of the interpolant; empty: it is cubic.
        diagonal: The diagonal of a, from the second stage on; 0 for explicit methods.
    """

    order: int
    nodes: Sequence[float]
    stages: Sequence[Sequence[float]]
    weights: Sequence[float]
    error_weights: Sequence[float] | None = None
    quartic_weights: Sequence[float] = ()
    diagonal: float = 0.0

    @property
    def reuses_last_stage(self) -> bool:
        """Return whether the last stage is the slope at the end of the step (first same as last)."""
        return len(self.stages) > 0 and self.nodes[-1] == 1 and [*self.stages[-1], self.diagonal] == [*self.weights]

    def step(self, f: Callable[[Any, Any], Any], t: Any, y: Any, slope: Any, h: Any) -> Step:
        """Take a step of length `h` from y at time t, where f is `slope`."""
        slopes = [slope]
        for node, row in zip(self.nodes, self.stages, strict=True):
            start = y + h * _combine(row, slopes)
            if self.diagonal:
                slopes.append(_implicit_slope(f, t + node * h, start, h * self.diagonal, slopes[-1]))
            else:
                slopes.append(f(t + node * h, start))
        end = y + h * _combine(self.weights, slopes)
        error = None if self.error_weights is None else h * _combine(self.error_weights, slopes)
        return Step(end, error, slopes[-1] if self.reuses_last_stage else f(t + h, end), stack(slopes))

    def coefficients(self, y: Any, step: Step, h: Any) -> Any:
        """Return the coefficients of the states within a step that began at y, (5, n), as in `saving.interpolate`.

        They form a cubic Hermite polynomial, with the quartic term of the method.
        """
        change = step.end - y
        bend = h * step.slopes[0] - change
        quartic = 0 * change
        if self.quartic_weights:
            quartic = h * _combine(self.quartic_weights, [step.slopes[i] for i in range(len(self.weights))])
        return stack([y, change, bend, change - h * step.slope - bend, quartic])


def _implicit_slope(f: Callable[[Any, Any], Any], t: Any, start: Any, h: Any, guess: Any) -> Any:
    """Return k = f(t, start + h k) by Newton's method; NaN if that does not converge."""
    # Newton's method converges quadratically: after a change of eps^0.6 the error is about eps^1.2, below rounding.
    tolerance = float(cast(Any, ml_dtypes.finfo)(start.dtype).eps) ** 0.6

    def residual(k: Any) -> Any:
        return k - f(t, start + h * k)

    def solve(residual: Callable[[Any], Any], k: Any) -> Any:
        def iterate(state: Any) -> Any:
            k, _, count = state
            change = linalg.solve(jacfwd(residual)(k), residual(k))
            return k - change, is_small(h * change, start, tolerance, tolerance), count + 1

        def is_running(state: Any) -> Any:
            return logical_not(state[1]) & (state[2] < _MAX_NEWTON_ITERATIONS)

        k, converged, _ = lax.while_loop(is_running, iterate, (k, np.asarray(False), 0))
        return where(converged, k, math.nan)

    return lax.custom_root(residual, guess, solve, dense_solve)


# A step that needs more iterations is too long.
_MAX_NEWTON_ITERATIONS = 12


def _combine(weights: Sequence[float], slopes: Sequence[Any]) -> Any:
    terms = [weight * slope for weight, slope in zip(weights, slopes, strict=True) if weight]
    # The first implicit stage of Euler's method has no explicit terms.
    total = terms[0] if terms else 0 * slopes[0]
    for term in terms[1:]:
        total = total + term
    return total


def Euler() -> Method:
    """The method of Euler, of order 1."""
    return Method(1, (), (), (1.0,))


def Midpoint() -> Method:
    """The midpoint method, of order 2, with an error estimate by Euler's method."""
    return Method(2, (0.5,), ((0.5,),), (0.0, 1.0), (-1.0, 1.0))


def Heun() -> Method:
    """The method of Heun, of order 2, with an error estimate by Euler's method."""
    return Method(2, (1.0,), ((1.0,),), (0.5, 0.5), (-0.5, 0.5))


def Bosh3() -> Method:
    """The method of Bogacki and Shampine, of order 3(2)."""
    weights = (2 / 9, 1 / 3, 4 / 9, 0.0)
    return Method(
        3, (0.5, 0.75, 1.0), ((0.5,), (0.0, 0.75), weights[:3]), weights, (2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8)
    )


def Dopri5() -> Method:
    """The method of Dormand and Prince, of order 5(4), with dense output of order 4 (Hairer, Nørsett and Wanner, II.6)."""
    weights = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0)
    embedded = (5179 / 57600, 0.0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40)
    return Method(
        order=5,
        nodes=(1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
        stages=(
            (1 / 5,),
            (3 / 40, 9 / 40),
            (44 / 45, -56 / 15, 32 / 9),
            (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
            (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
            weights[:6],
        ),
        weights=weights,
        error_weights=tuple(b - e for b, e in zip(weights, embedded, strict=True)),
        quartic_weights=(
            -12715105075 / 11282082432,
            0.0,
            87487479700 / 32700410799,
            -10690763975 / 1880347072,
            701980252875 / 199316789632,
            -1453857185 / 822651844,
            69997945 / 29380423,
        ),
    )


def Tsit5() -> Method:
    """The method of Tsitouras, of order 5(4), with dense output of order 4 (Runge-Kutta pairs of order 5(4), 2011)."""
    weights = (
        0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774, 0.0,
    )  # fmt: skip
    return Method(
        order=5,
        nodes=(0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0),
        stages=(
            (0.161,),
            (-0.008480655492356989, 0.335480655492357),
            (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
            (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
            (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
            weights[:6],
        ),
        weights=weights,
        error_weights=(
            -0.00178001105222577714,
            -0.0008164344596567469,
            0.007880878010261995,
            -0.1447110071732629,
            0.5823571654525552,
            -0.45808210592918697,
            0.015151515151515152,
        ),
        quartic_weights=(
            -1.0530884977290216,
            0.1017,
            2.490627285651252793,
            -16.54810288924490272,
            47.37952196281928122,
            -34.87065786149660974,
            2.5,
        ),
    )


def ImplicitEuler() -> Method:
    """The implicit method of Euler, of order 1, for stiff equations, with an error estimate by the trapezoidal rule."""
    return Method(1, (1.0,), ((0.0,),), (0.0, 1.0), (-0.5, 0.5), diagonal=1.0)


def Kvaerno3() -> Method:
    """The L-stable method of Kværnø for stiff equations, of order 3(2) (Singly diagonally implicit methods, 2004)."""
    g = 0.4358665215
    embedded = ((-4 * g**2 + 6 * g - 1) / (4 * g), (1 - 2 * g) / (4 * g), g, 0.0)
    weights = ((6 * g - 1) / (12 * g), -1 / ((24 * g - 12) * g), (-6 * g**2 + 6 * g - 1) / (6 * g - 3), g)
    return Method(
        order=3,
        nodes=(2 * g, 1.0, 1.0),
        stages=((g,), embedded[:2], weights[:3]),
        weights=weights,
        error_weights=tuple(b - e for b, e in zip(weights, embedded, strict=True)),
        diagonal=g,
    )


def Kvaerno5() -> Method:
    """The L-stable method of Kværnø for stiff equations, of order 5(4) (Singly diagonally implicit methods, 2004)."""
    g = 0.26
    embedded = (0.13855640231268224, 0.0, -0.04245337201752043, 0.02446657898003141, 0.61943039072480676, g, 0.0)
    weights = (
        0.13659751177640291, 0.0, -0.05496908796538376, -0.04118626728321046, 0.62993304899016403, 0.06962479448202728, g,
    )  # fmt: skip
    return Method(
        order=5,
        nodes=(2 * g, 1.230333209967908, 0.8957659843500759, 0.43639360985864756, 1.0, 1.0),
        stages=(
            (g,),
            (0.13, 0.84033320996790809),
            (0.22371961478320505, 0.47675532319799699, -0.06470895363112615),
            (0.16648564323248321, 0.10450018841591720, 0.03631482272098715, -0.13090704451073998),
            embedded[:5],
            weights[:6],
        ),
        weights=weights,
        error_weights=tuple(b - e for b, e in zip(weights, embedded, strict=True)),
        diagonal=g,
    )

"""The lengths of the steps of `diffeqsolve`: constant, or adapted to estimated errors."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from dlc.numpy import abs, isfinite, maximum, minimum, power, sqrt, sum, where
from dlc.solve.runge_kutta import Step

__all__ = ["ConstantStepSize", "Controller", "PIDController"]


class ConstantStepSize(NamedTuple):
    """Steps of length `dt0`; the last one ends at `t1`."""


class PIDController(NamedTuple):
    """Steps whose estimated error is at most atol + rtol · |y| in the root-mean-square norm (Söderlind, 2003).

    The step is scaled by (1 / error)^(icoeff / order), times powers of the two previous errors by `pcoeff` and `dcoeff`.
    """

    rtol: float
    atol: float
    pcoeff: float = 0.0
    icoeff: float = 1.0
    dcoeff: float = 0.0
    safety: float = 0.9
    factormin: float = 0.2
    factormax: float = 10.0

    def initial_length(self, y: Any, slope: Any) -> Any:
        """Return a first step length of about 1 % of the scale of the solution (Hairer, Nørsett and Wanner, II.4)."""
        scale = self.atol + self.rtol * abs(y)
        size, speed = _norm(y / scale), _norm(slope / scale)
        is_tiny = (size < 1e-5) | (speed < 1e-5)
        return where(is_tiny, 1e-6, 0.01 * size / where(is_tiny, 1, speed))

    def error(self, start: Any, step: Step) -> Any:
        """Return the estimated error of a step, relative to the tolerance."""
        error = _norm(step.error / (self.atol + self.rtol * maximum(abs(start), abs(step.end))))
        # Bounds for powers of the error; NaN and infinity reject the step.
        return where(isfinite(error), maximum(error, 1e-10), 1e10)

    def factor(self, order: int, error: Any, errors: Any, is_accepted: Any) -> Any:
        """Return the factor of the next step length, from the error and the two previous errors, for a method of an order."""
        exponents = (
            -(self.icoeff + self.pcoeff + self.dcoeff) / order,
            (self.pcoeff + 2 * self.dcoeff) / order,
            -self.dcoeff / order,
        )
        factor = self.safety * power(error, exponents[0])
        for exponent, previous in zip(exponents[1:], (errors[0], errors[1]), strict=True):
            if exponent:
                factor = factor * power(previous, exponent)
        factor = minimum(maximum(factor, self.factormin), self.factormax)
        return where(is_accepted, factor, minimum(factor, 1.0))


Controller: TypeAlias = ConstantStepSize | PIDController


def _norm(x: Any) -> Any:
    """Return the root mean square."""
    return sqrt(sum(x * x) / x.shape[0])

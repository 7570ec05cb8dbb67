"""The results of solvers: the solution, the reason why it ended, and statistics."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from dlc.errors import DTypeError
from dlc.numpy import all, equal, isfinite, where
from dlc.numpy.apply import refuse

__all__ = ["RESULTS", "Solution", "failure_unless", "iteration_result", "split_aux"]


class RESULTS(enum.IntEnum):
    """The reason why a solver ended: `RESULTS(solution.result).message` describes it; empty for success."""

    successful = 0, ""
    max_steps_reached = 1, "The maximum number of steps was reached. Increase max_steps, or relax rtol and atol."
    singular = 2, "The linear operator is singular, or the right side is not finite."
    nonlinear_max_steps_reached = (
        3,
        "The maximum number of steps was reached. Increase max_steps, or start closer.",
    )
    nonlinear_divergence = 4, "The iterations diverged, or cannot reduce the error: start closer to the solution."
    dt_min_reached = (
        5,
        "No step length is left: the solution is singular, or the state or slope is not finite.",
    )
    event_occurred = 6, "An event ended the integration."
    nonfinite = 7, "The state is not finite. Take shorter steps."

    message: str

    def __new__(cls, value: int, message: str) -> RESULTS:
        member = int.__new__(cls, value)
        member._value_ = value
        member.message = message
        return member

    @classmethod
    def _missing_(cls, value: object) -> RESULTS | None:
        """Find the member of an array without axes."""
        code = np.asarray(value)
        return next((member for member in cls if member == code), None) if code.shape == () else None


def failure_unless(is_successful: Any, failure: RESULTS) -> Any:
    """Return the code of success, or of a failure, int32."""
    return where(is_successful, np.int32(RESULTS.successful), np.int32(failure))


def iteration_result(converged: Any, value: Any) -> Any:
    """Return the code of iterations for a nonlinear equation that end at a vector."""
    is_finite = all(isfinite(value))
    failure = where(is_finite, np.int32(RESULTS.nonlinear_max_steps_reached), np.int32(RESULTS.nonlinear_divergence))
    return where(converged & is_finite, np.int32(RESULTS.successful), failure)


class Solution(NamedTuple):
    """The result of a solver.

    Attributes:
        value: The unknown; a pytree like the initial guess or the right side.
        result: A code of `RESULTS`, an integer.
        stats: "num_steps", the number of iterations, an integer.
        aux: The second result of `fn` at `value`, if the solver was called with `has_aux`; else None.
    """

    value: Any
    result: Any
    stats: dict[str, Any]
    aux: Any = None

    @property
    def converged(self) -> Any:
        """Return whether the tolerance was reached, a bool."""
        return equal(self.result, int(RESULTS.successful))


def split_aux(
    api_name: str, fn: Callable[[Any, Any], Any], args: Any, has_aux: bool
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the value and the auxiliary result of `fn` as functions of the unknown."""
    if not has_aux:
        return lambda y: fn(y, args), lambda _: None

    def part(index: int) -> Callable[[Any], Any]:
        def call(y: Any) -> Any:
            result = fn(y, args)
            if not isinstance(cast("object", result), tuple) or len(result) != 2:
                refuse(DTypeError(f"{api_name}: fn returned a {type(result).__name__}; expected (value, aux) for has_aux=True"))
            return result[index]

        return call

    return part(0), part(1)

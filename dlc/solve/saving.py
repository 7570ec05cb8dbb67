"""The results of `diffeqsolve`: states at times, at the ends of steps, and between them (dense output)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dlc import tree
from dlc.errors import DlcError
from dlc.numpy import equal, isfinite, logical_or, maximum, minimum, searchsorted, sign, subtract, sum, take
from dlc.numpy.apply import ArrayLike, convert, operand, refuse
from dlc.solve.results import RESULTS

__all__ = ["DenseInterpolation", "DiffEqSolution", "SaveAt", "interpolate"]


class SaveAt(NamedTuple):
    """The times of the results: `t0`, then `ts` and the ends of steps, then `t1`.

    Attributes:
        t0: Whether the start is saved.
        t1: Whether the end is saved.
        ts: Increasing times in the direction of integration.
        steps: True, or n for the ends of every n-th step. The results have `max_steps` // n times; inf for the unused ones.
        fn: The function fn(t, y, args) of the state that is saved, by default the state.
        dense: Whether `DiffEqSolution.evaluate` is available. It stores `max_steps` steps.
    """

    t0: bool = False
    t1: bool = False
    ts: ArrayLike | None = None
    steps: bool | int = False
    fn: Callable[[Any, Any, Any], Any] | None = None
    dense: bool = False


class DenseInterpolation(NamedTuple):
    """A solution as one polynomial per step.

    Attributes:
        starts: The times at which steps begin, (max_steps,); after the last step, infinite.
        ends: The times at which they end.
        coefficients: A pytree like `y0`, with axes for the steps and for the coefficients of `interpolate` in front.
    """

    starts: Any
    ends: Any
    coefficients: Any

    def evaluate(self, t: Any) -> Any:
        """Return the state at a time, a pytree like `y0`; outside of the solution, the first or last step is extrapolated."""
        t = convert(operand(t), self.starts.dtype)
        direction = sign(self.ends[0] - self.starts[0])
        last = maximum(sum(isfinite(self.ends)) - 1, 0)
        step = minimum(searchsorted(direction * self.ends, direction * t), last)
        start = take(self.starts, step)
        position = (t - start) / (take(self.ends, step) - start)

        def state(coefficients: Any) -> Any:
            return interpolate(take(coefficients, step, axis=0), position)

        return tree.map(state, self.coefficients)


def interpolate(coefficients: Any, position: Any) -> Any:
    """Return the state at a relative position in a step, for the five coefficients along axis 0.

    They are those of Hairer, Nørsett and Wanner, II.6: y₀ + s (c₁ + (1 - s) (c₂ + s (c₃ + (1 - s) c₄))).
    """
    s, rest = position, 1 - position
    start, change, bend, cubic, quartic = (coefficients[k] for k in range(5))
    return start + s * (change + rest * (bend + s * (cubic + rest * quartic)))


class DiffEqSolution(NamedTuple):
    """The solution of a differential equation.

    Attributes:
        ts: The times (m,) of `SaveAt`; None without times. The end is the time of the event if there was one.
        ys: A pytree like `y0` or the results of `SaveAt.fn`, with the times along a new axis 0; inf for times after an event
            and times that were not reached.
        result: A code of `RESULTS`, an integer.
        stats: "num_steps", and of these "num_accepted_steps" and "num_rejected_steps", integers.
        event_mask: Whether an event ended the integration, a bool.
        interpolation: The dense output, or None.
    """

    ts: Any
    ys: Any
    result: Any
    stats: dict[str, Any]
    event_mask: Any
    interpolation: DenseInterpolation | None

    @property
    def succeeded(self) -> Any:
        """Return whether the end or an event was reached with a finite state, a bool."""
        return logical_or(equal(self.result, int(RESULTS.successful)), equal(self.result, int(RESULTS.event_occurred)))

    def evaluate(self, t0: Any, t1: Any = None) -> Any:
        """Return the state at the time `t0`, or its change from `t0` to `t1`; needs SaveAt(dense=True).

        Raises DlcError without dense output.
        """
        if self.interpolation is None:
            api_name = "dlc.solve.DiffEqSolution.evaluate"
            return refuse(DlcError(f"{api_name}: no dense output; call diffeqsolve with SaveAt(dense=True)"))
        first = self.interpolation.evaluate(t0)
        return first if t1 is None else tree.map(subtract, self.interpolation.evaluate(t1), first)

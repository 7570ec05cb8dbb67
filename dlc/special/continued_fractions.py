"""Continued fractions, evaluated by the modified Lentz algorithm (Press et al., Numerical Recipes, 5.2)."""

from __future__ import annotations

from typing import Any

from dlc.numpy.functions.comparison import greater, greater_equal, less, logical_and, logical_or
from dlc.numpy.functions.elementwise import abs, where
from dlc.numpy.functions.reductions import any

# Relative size of the last change.
_LAST_STEP_RATIO = 2.0**-50
# Enough for derivatives to converge.
_NUM_STEPS_AFTER_END = 40
# Replaces a divisor of 0.
SMALLEST_FACTOR = 1e-300


def has_not_converged(step: Any, factor: Any, end: Any) -> Any:
    """Return whether a step that multiplied the value by `factor` is not the last one, for any element.

    For an integer parameter, the fraction ends at the step `end`; its derivative with respect to the parameter does not.
    """
    is_past_end = logical_and(greater_equal(step, end), less(step, end + _NUM_STEPS_AFTER_END))
    return any(logical_or(greater(abs(factor - 1), _LAST_STEP_RATIO), is_past_end))


def nonzero(x: Any) -> Any:
    """Return x, or the smallest factor for 0."""
    return where(less(abs(x), SMALLEST_FACTOR), SMALLEST_FACTOR, x)

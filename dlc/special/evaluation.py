"""Helpers to evaluate special functions: promotion to floats, float64 computation and polynomials."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.numpy.apply import ArrayLike, Operand, convert, promote_to_float
from dlc.numpy.functions.shape_manipulation import broadcast_shapes


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of operands of one float dtype to compute in float64, against cancellation, and round once."""

    @functools.wraps(function)
    def widened(*xs: Operand) -> Any:
        return convert(function(*(convert(x, np.float64) for x in xs)), xs[0].dtype)

    return widened


def promote_floats(*xs: ArrayLike) -> list[Operand]:
    """Return the operands with a common float dtype; their shapes must broadcast."""
    operands = promote_to_float(*xs, min_dtype=np.float16)
    broadcast_shapes(*(x.shape for x in operands))
    return operands


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluate a polynomial by Horner's rule; coefficients are ordered from the highest power."""
    value: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


# Limit of the series of log1p_deficit_ratio, and its number of terms.
MAX_DEFICIT_ARGUMENT, _NUM_DEFICIT_TERMS = 0.3, 29


def log1p_deficit_ratio(u: Any) -> Any:
    """Return (u - log(1 + u)) / u² for |u| ≤ MAX_DEFICIT_ARGUMENT, by its power series."""
    return polynomial(-u, [1 / (n + 2) for n in reversed(range(_NUM_DEFICIT_TERMS))])

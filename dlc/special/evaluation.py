"""Helpers to evaluate special functions: promotion to floats, float64 computation and polynomials."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.numpy.apply import ArrayLike, Operand, convert, promote_to_float


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of operands of one float dtype to compute in float64, against cancellation, and round once."""

    @functools.wraps(function)
    def widened(*xs: Operand) -> Any:
        return convert(function(*(convert(x, np.float64) for x in xs)), xs[0].dtype)

    return widened


def promote_floats(*xs: ArrayLike) -> list[Operand]:
    return promote_to_float(*xs, min_dtype=np.float16)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluate a polynomial by Horner's rule; coefficients are ordered from the highest power."""
    value: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value

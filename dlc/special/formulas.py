"""What functions of several formulas share: operands as floats, wider ones, and polynomials."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.numpy.apply import ArrayLike, Operand, convert, promote_to_float


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of operands of one float dtype that computes in float64, as cancellation costs digits, and rounds once."""

    @functools.wraps(function)
    def widened(*xs: Operand) -> Any:
        return convert(function(*(convert(x, np.float64) for x in xs)), xs[0].dtype)

    return widened


def floats(*xs: ArrayLike) -> list[Operand]:
    return promote_to_float(*xs, least=np.float16)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial, by Horner's rule; the coefficient of the highest power comes first."""
    value: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value

"""What parameters begin with: functions of a key, a shape and a dtype. The last two axes of a shape are inputs, outputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlc import random
from dlc.errors import ShapeError
from dlc.lax import fori_loop
from dlc.misuse import explain_misuse
from dlc.numpy import at, divide, matmul, multiply, sqrt, sum, swapaxes, take
from dlc.numpy.apply import AnyDType, ArrayLike, convert, refuse

__all__ = ["glorot", "he", "lecun", "normal", "orthogonal", "uniform", "zeros"]

# The standard deviation of a normal distribution between -2 and 2.
_TRUNCATED = 0.87962566103423978


def zeros(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32) -> Any:
    """Zeros; the key is not drawn from."""
    return np.zeros(shape, dtype)


def normal(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, scale: float = 0.01) -> Any:
    """Numbers of the normal distribution of mean 0 and standard deviation `scale`."""
    return multiply(random.normal(key, shape, dtype), scale)


def uniform(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, scale: float = 0.01) -> Any:
    """Numbers of [0, scale), all equally likely."""
    return multiply(random.uniform(key, shape, dtype), scale)


def glorot(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, distribution: str = "uniform") -> Any:
    """Of variance 2 / (inputs + outputs), for layers that are about linear (Glorot and Bengio, 2010)."""
    inputs, outputs = _fans("glorot", shape)
    return _scaled(key, shape, dtype, 2 / (inputs + outputs), distribution)


def he(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, distribution: str = "truncated_normal") -> Any:
    """Of variance 2 / inputs, for layers with relu after them (He and others, 2015)."""
    return _scaled(key, shape, dtype, 2 / _fans("he", shape)[0], distribution)


def lecun(
    key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, distribution: str = "truncated_normal"
) -> Any:
    """Of variance 1 / inputs, so that the variance of what comes in goes out (LeCun and others, 1998)."""
    return _scaled(key, shape, dtype, 1 / _fans("lecun", shape)[0], distribution)


def orthogonal(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, scale: float = 1.0) -> Any:
    """A matrix [R, C] of orthonormal columns, or rows if there are fewer, all such equally likely, times `scale`.

    Raises ShapeError for a shape of other than two axes.
    """
    if len(shape) != 2:
        refuse(ShapeError(f"dlc.nn.init.orthogonal: shape {shape}, expected a matrix"))
    longer, shorter = max(shape), min(shape)
    drawn = convert(random.normal(key, (longer, shorter), dtype), np.float64)

    def step(j: Any, q: Any) -> Any:
        # Gram and Schmidt's step, twice: the first leaves rounding errors of the columns' lengths.
        column = take(drawn, j, axis=1)
        for _ in range(2):
            column = column - matmul(q, matmul(swapaxes(q, 0, 1), column))
        return at(q)[:, j].set(divide(column, sqrt(sum(column * column))))

    q = fori_loop(0, shorter, step, np.zeros((longer, shorter)))
    return multiply(convert(q if shape[0] == longer else swapaxes(q, 0, 1), dtype), scale)


def _fans(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """How many elements each output, and each input, is connected to."""
    if len(shape) < 2:
        refuse(ShapeError(f"dlc.nn.init.{name}: shape {shape}, expected one with an axis of inputs and one of outputs"))
    window, (inputs, outputs) = math.prod(shape[:-2]), [*shape][-2:]
    return window * inputs, window * outputs


def _scaled(key: ArrayLike, shape: tuple[int, ...], dtype: Any, variance: float, distribution: str) -> Any:
    match distribution:
        case "normal":
            return multiply(random.normal(key, shape, dtype), math.sqrt(variance))
        case "truncated_normal":
            return multiply(random.truncated_normal(key, -2.0, 2.0, shape, dtype), math.sqrt(variance) / _TRUNCATED)
        case "uniform":
            return multiply(random.uniform(key, shape, dtype, -1.0, 1.0), math.sqrt(3 * variance))
        case _:
            names = '"normal", "truncated_normal" or "uniform"'
            return refuse(ShapeError(f"dlc.nn.init: distribution {distribution!r}; expected {names}"))


explain_misuse(globals())

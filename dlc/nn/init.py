"""Initializers of parameters: functions of a key, a shape and a dtype. The last two axes of a shape are inputs and outputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlc import random
from dlc.argument_validation.validate import validate_arguments
from dlc.errors import ShapeError
from dlc.lax import fori_loop
from dlc.numpy import at, divide, matmul, multiply, sqrt, sum, swapaxes, take
from dlc.numpy.apply import AnyDType, ArrayLike, convert, refuse

__all__ = ["glorot", "he", "lecun", "normal", "orthogonal", "uniform", "zeros"]

# The standard deviation of the standard normal distribution truncated to [-2, 2].
_TRUNCATED_NORMAL_STD = 0.87962566103423978


def zeros(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32) -> Any:
    """Return zeros; the key is not used."""
    return np.zeros(shape, dtype)


def normal(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, scale: float = 0.01) -> Any:
    """Draw from the normal distribution with mean 0 and standard deviation `scale`."""
    return multiply(random.normal(key, shape, dtype), scale)


def uniform(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, scale: float = 0.01) -> Any:
    """Draw from the uniform distribution on [0, scale)."""
    return multiply(random.uniform(key, shape, dtype), scale)


def glorot(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, distribution: str = "uniform") -> Any:
    """Draw with variance 2 / (inputs + outputs), for nearly linear layers (Glorot and Bengio, 2010)."""
    inputs, outputs = _fans("glorot", shape)
    return _variance_scaled(key, shape, dtype, 2 / (inputs + outputs), distribution)


def he(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, distribution: str = "truncated_normal") -> Any:
    """Draw with variance 2 / inputs, for layers followed by relu (He et al., 2015)."""
    return _variance_scaled(key, shape, dtype, 2 / _fans("he", shape)[0], distribution)


def lecun(
    key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, distribution: str = "truncated_normal"
) -> Any:
    """Draw with variance 1 / inputs, which preserves the variance of the inputs (LeCun et al., 1998)."""
    return _variance_scaled(key, shape, dtype, 1 / _fans("lecun", shape)[0], distribution)


def orthogonal(key: ArrayLike, shape: tuple[int, ...], dtype: AnyDType = np.float32, *, scale: float = 1.0) -> Any:
    """Draw a uniformly distributed matrix [R, C] with orthonormal columns, or rows if R < C, times `scale`.

    Raises ShapeError for a shape of other than two axes.
    """
    if len(shape) != 2:
        refuse(ShapeError(f"dlc.nn.init.orthogonal: shape {shape}; expected a matrix, two axes"))
    longer, shorter = max(shape), min(shape)
    samples = convert(random.normal(key, (longer, shorter), dtype), np.float64)

    def step(j: Any, q: Any) -> Any:
        # Gram–Schmidt with reorthogonalization: one pass leaves rounding errors relative to the length of the column.
        column = take(samples, j, axis=1)
        for _ in range(2):
            column = column - matmul(q, matmul(swapaxes(q, 0, 1), column))
        return at(q)[:, j].set(divide(column, sqrt(sum(column * column))))

    q = fori_loop(0, shorter, step, np.zeros((longer, shorter)))
    return multiply(convert(q if shape[0] == longer else swapaxes(q, 0, 1), dtype), scale)


def _fans(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the fan-in and the fan-out: the number of inputs of an output, and of outputs of an input, at least 1."""
    if len(shape) < 2:
        refuse(ShapeError(f"dlc.nn.init.{name}: shape {shape}; expected at least two axes, the last two inputs and outputs"))
    window, (inputs, outputs) = math.prod(shape[:-2]), [*shape][-2:]
    return max(window * inputs, 1), max(window * outputs, 1)


def _variance_scaled(key: ArrayLike, shape: tuple[int, ...], dtype: Any, variance: float, distribution: str) -> Any:
    match distribution:
        case "normal":
            return multiply(random.normal(key, shape, dtype), math.sqrt(variance))
        case "truncated_normal":
            return multiply(random.truncated_normal(key, -2.0, 2.0, shape, dtype), math.sqrt(variance) / _TRUNCATED_NORMAL_STD)
        case "uniform":
            return multiply(random.uniform(key, shape, dtype, -1.0, 1.0), math.sqrt(3 * variance))
        case _:
            names = '"normal", "truncated_normal" or "uniform"'
            return refuse(ShapeError(f"dlc.nn.init: distribution {distribution!r}; expected {names}"))


validate_arguments(globals())

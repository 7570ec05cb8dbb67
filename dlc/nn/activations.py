"""Activation functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.errors import DTypeError
from dlc.numpy import (
    add,
    clip,
    divide,
    equal,
    expand_dims,
    expm1,
    maximum,
    minimum,
    multiply,
    negative,
    split,
    sqrt,
    square,
)
from dlc.numpy.apply import AnyDType, ArrayLike, apply, convert, operand, promote_to_float, refuse

__all__ = [
    "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_swish", "hard_tanh", "leaky_relu", "log_sigmoid", "log_softmax",
    "mish", "one_hot", "relu", "relu6", "selu", "sigmoid", "silu", "softmax", "softplus", "softsign", "squareplus",
]  # fmt: skip


def relu(x: ArrayLike, /) -> Any:
    """Return max(x, 0)."""
    return apply(dl.ReluOp, operand(x))


def leaky_relu(x: ArrayLike, /, slope: float = 0.01) -> Any:
    """Return `x` where it is positive, else slope · x."""
    return apply(dl.LeakyReluOp, *promote_to_float(x), alpha=float(slope))


def elu(x: ArrayLike, /, alpha: float = 1.0) -> Any:
    """Return `x` where it is positive, else alpha · (eˣ - 1)."""
    return apply(dl.EluOp, *promote_to_float(x), alpha=float(alpha))


def celu(x: ArrayLike, /, alpha: float = 1.0) -> Any:
    """Return `x` where it is positive, else alpha · (e^(x / alpha) - 1)."""
    (x,) = promote_to_float(x)
    return add(maximum(x, 0), multiply(expm1(divide(minimum(x, 0), alpha)), alpha))


def selu(x: ArrayLike, /) -> Any:
    """Return 1.0507 · elu(x, 1.6733), whose fixed point has mean 0 and variance 1."""
    return apply(dl.SeluOp, *promote_to_float(x), alpha=1.6732632423543772, gamma=1.0507009873554805)


def softplus(x: ArrayLike, /) -> Any:
    """Return log(1 + eˣ) without overflow."""
    return apply(dl.SoftplusOp, *promote_to_float(x))


def softsign(x: ArrayLike, /) -> Any:
    """Return x / (1 + |x|)."""
    return apply(dl.SoftsignOp, *promote_to_float(x))


def mish(x: ArrayLike, /) -> Any:
    """Return x · tanh(softplus(x))."""
    return apply(dl.MishOp, *promote_to_float(x))


def relu6(x: ArrayLike, /) -> Any:
    """Return `x` limited to [0, 6]."""
    return clip(x, 0, 6)


def hard_tanh(x: ArrayLike, /) -> Any:
    """Return `x` limited to [-1, 1]."""
    return clip(x, -1, 1)


def squareplus(x: ArrayLike, /, b: ArrayLike = 4.0) -> Any:
    """Return (x + √(x² + b)) / 2."""
    (x,) = promote_to_float(x)
    return multiply(add(x, sqrt(add(square(x), b))), 0.5)


def glu(x: ArrayLike, /, axis: int = -1) -> Any:
    """Return the first half of `x` along `axis` times the sigmoid of the second half."""
    values, gates = split(operand(x), 2, axis)
    return multiply(values, sigmoid(gates))


def log_sigmoid(x: ArrayLike, /) -> Any:
    """Return log(sigmoid(x)) without overflow."""
    (x,) = promote_to_float(x)
    return negative(softplus(negative(x)))


def one_hot(x: ArrayLike, num_classes: int, /, *, dtype: AnyDType = np.float32, axis: int = -1) -> Any:
    """Return 1 where the index along a new `axis` of size `num_classes` is the element, else 0."""
    x = operand(x)
    if x.dtype.kind not in "iu":
        refuse(DTypeError(f"one_hot: dtype {x.dtype}; expected integers"))
    classes = np.arange(num_classes).reshape([-1] + [1] * (x.ndim - (axis % (x.ndim + 1))))
    return convert(equal(expand_dims(convert(x, np.int64), axis), classes), dtype)


def hard_sigmoid(x: ArrayLike, /) -> Any:
    """Return (x + 3) / 6, limited to [0, 1]."""
    return apply(dl.HardsigmoidOp, *promote_to_float(x), alpha=1 / 6, beta=0.5)


def hard_swish(x: ArrayLike, /) -> Any:
    """Return x · hard_sigmoid(x)."""
    return apply(dl.HardswishOp, *promote_to_float(x))


def sigmoid(x: ArrayLike, /) -> Any:
    """Return 1 / (1 + e⁻ˣ)."""
    return apply(dl.SigmoidOp, *promote_to_float(x))


def silu(x: ArrayLike, /) -> Any:
    """Return x · sigmoid(x)."""
    return apply(dl.SiluOp, *promote_to_float(x))


def gelu(x: ArrayLike, /, approximate: bool = False) -> Any:
    """Return x · Φ(x), where Φ is the normal distribution function; `approximate` uses tanh."""
    return apply(dl.GeluOp, *promote_to_float(x), approximate="tanh" if approximate else "none")


def softmax(x: ArrayLike, /, axis: int = -1) -> Any:
    """Return exp(x) / Σ exp(x) along `axis`."""
    return apply(dl.SoftmaxOp, *promote_to_float(x), axis=axis)


def log_softmax(x: ArrayLike, /, axis: int = -1) -> Any:
    """Return log(softmax(x)) along `axis` without overflow."""
    return apply(dl.LogSoftmaxOp, *promote_to_float(x), axis=axis)

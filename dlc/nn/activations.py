"""Activations: functions of elements, and of rows."""

from __future__ import annotations

from typing import Any

from dlc.dialects import dl
from dlc.numpy.apply import ArrayLike, apply, operand, promote_to_float

__all__ = [
    "elu", "gelu", "hard_sigmoid", "hard_swish", "leaky_relu", "log_softmax", "mish", "relu", "selu", "sigmoid", "silu",
    "softmax", "softplus", "softsign",
]  # fmt: skip


def relu(x: ArrayLike, /) -> Any:
    """max(x, 0)."""
    return apply(dl.ReluOp, operand(x))


def leaky_relu(x: ArrayLike, /, slope: float = 0.01) -> Any:
    """`x` where it is positive, else slope · x."""
    return apply(dl.LeakyReluOp, *promote_to_float(x), alpha=float(slope))


def elu(x: ArrayLike, /, alpha: float = 1.0) -> Any:
    """`x` where it is positive, else alpha · (eˣ - 1)."""
    return apply(dl.EluOp, *promote_to_float(x), alpha=float(alpha))


def selu(x: ArrayLike, /) -> Any:
    """1.0507 · elu(x, 1.6733), under which mean 0 and variance 1 are stable."""
    return apply(dl.SeluOp, *promote_to_float(x), alpha=1.6732632423543772, gamma=1.0507009873554805)


def softplus(x: ArrayLike, /) -> Any:
    """log(1 + eˣ), computed without overflow."""
    return apply(dl.SoftplusOp, *promote_to_float(x))


def softsign(x: ArrayLike, /) -> Any:
    """x / (1 + |x|)."""
    return apply(dl.SoftsignOp, *promote_to_float(x))


def mish(x: ArrayLike, /) -> Any:
    """x · tanh(softplus(x))."""
    return apply(dl.MishOp, *promote_to_float(x))


def hard_sigmoid(x: ArrayLike, /) -> Any:
    """(x + 3) / 6 moved into [0, 1]."""
    return apply(dl.HardsigmoidOp, *promote_to_float(x), alpha=1 / 6, beta=0.5)


def hard_swish(x: ArrayLike, /) -> Any:
    """x · hard_sigmoid(x)."""
    return apply(dl.HardswishOp, *promote_to_float(x))


def sigmoid(x: ArrayLike, /) -> Any:
    """1 / (1 + e⁻ˣ)."""
    return apply(dl.SigmoidOp, *promote_to_float(x))


def silu(x: ArrayLike, /) -> Any:
    """x · sigmoid(x)."""
    return apply(dl.SiluOp, *promote_to_float(x))


def gelu(x: ArrayLike, /, approximate: bool = False) -> Any:
    """x · Φ(x), Φ the normal distribution; `approximate` by tanh."""
    return apply(dl.GeluOp, *promote_to_float(x), approximate="tanh" if approximate else "none")


def softmax(x: ArrayLike, /, axis: int = -1) -> Any:
    """exp(x) / Σ exp(x) along `axis`."""
    return apply(dl.SoftmaxOp, *promote_to_float(x), axis=axis)


def log_softmax(x: ArrayLike, /, axis: int = -1) -> Any:
    """log(softmax(x)) along `axis`, computed without overflow."""
    return apply(dl.LogSoftmaxOp, *promote_to_float(x), axis=axis)

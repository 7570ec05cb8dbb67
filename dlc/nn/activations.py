"""Activation functions."""

from __future__ import annotations

from typing import Any

from dlc.dialects import dl
from dlc.numpy.apply import ArrayLike, apply, operand, promote_to_float

__all__ = [
    "elu", "gelu", "hard_sigmoid", "hard_swish", "leaky_relu", "log_softmax", "mish", "relu", "selu", "sigmoid", "silu",
    "softmax", "softplus", "softsign",
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

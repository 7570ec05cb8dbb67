"""Normalization to mean 0 and variance 1."""

from __future__ import annotations

from typing import Any, cast

from dlc.dialects import dl
from dlc.errors import ShapeError
from dlc.numpy import add, divide, mean, multiply, reshape, sqrt, square, subtract
from dlc.numpy.apply import ArrayLike, Operand, apply, promote_to_float, refuse
from dlc.shapes.dims import product

__all__ = ["batch_norm", "group_norm", "layer_norm", "rms_norm"]


def layer_norm(x: ArrayLike, scale: ArrayLike, bias: ArrayLike, /, *, epsilon: float = 1e-5) -> Any:
    """Return (x - mean) / √(variance + epsilon) · scale + bias, with statistics over the last axis."""
    return apply(dl.LayerNormOp, *promote_to_float(x, scale, bias), axis=-1, epsilon=float(epsilon))


def rms_norm(x: ArrayLike, scale: ArrayLike, /, *, epsilon: float = 1e-6) -> Any:
    """Return x / √(mean of x² + epsilon) · scale, with statistics over the last axis."""
    return apply(dl.RmsNormOp, *promote_to_float(x, scale), axis=-1, epsilon=float(epsilon))


def group_norm(x: ArrayLike, scale: ArrayLike, bias: ArrayLike, /, groups: int, *, epsilon: float = 1e-5) -> Any:
    """Normalize x [N, *S, C] over each group of C / groups channels, then apply each channel's scale and bias.

    Raises ShapeError if the channels do not divide into `groups` groups.
    """
    x, scale, bias = promote_to_float(x, scale, bias)
    if x.ndim < 2 or groups < 1:
        refuse(
            ShapeError(f"dlc.nn.group_norm: x of shape {x.shape}, groups {groups}; expected shape [N, *S, C] and groups ≥ 1")
        )
    if x.shape[-1] % groups:
        refuse(ShapeError(f"dlc.nn.group_norm: {x.shape[-1]} channels do not divide into {groups} groups"))
    num_positions = cast(int, product(x.shape[1:-1]))  # or a symbolic size
    grouped = reshape(x, (x.shape[0], num_positions, groups, x.shape[-1] // groups))
    centred, variance = _statistics(grouped, (1, 3))[1:]
    normal = reshape(divide(centred, sqrt(add(variance, epsilon))), x.shape)
    return add(multiply(normal, scale), bias)


def batch_norm(
    x: ArrayLike,
    scale: ArrayLike,
    bias: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    /,
    *,
    training: bool,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
) -> tuple[Any, Any, Any]:
    """Normalize x [..., C] by each channel's mean and variance, and apply scale and bias; also return the running statistics.

    In training, the statistics of the batch are used, and the running statistics become
    momentum · old + (1 - momentum) · batch. Otherwise the running statistics are used and returned unchanged.
    """
    x, scale, bias, mean, variance = promote_to_float(x, scale, bias, mean, variance)
    if not training:
        return apply(dl.BatchNormOp, x, scale, bias, mean, variance, axis=-1, epsilon=float(epsilon)), mean, variance
    batch_mean, centred, batch_variance = _statistics(x, tuple(range(x.ndim - 1)))
    y = add(multiply(centred, divide(scale, sqrt(add(batch_variance, epsilon)))), bias)
    flat = (reshape(new, scale.shape) for new in (batch_mean, batch_variance))
    running = [
        add(multiply(old, momentum), multiply(new, 1 - momentum)) for old, new in zip((mean, variance), flat, strict=True)
    ]
    return y, running[0], running[1]


def _statistics(x: Operand, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return the mean along axes, with size 1, the centred `x` and its variance."""
    mean_x = mean(x, axes, keepdims=True)
    centred = subtract(x, mean_x)
    return mean_x, centred, mean(square(centred), axes, keepdims=True)

"""Normalisation: to mean 0 and variance 1, along one axis or another."""

from __future__ import annotations

from typing import Any, cast

from dlc.dialects import dl
from dlc.dims import product
from dlc.errors import ShapeError
from dlc.numpy import add, divide, mean, multiply, reshape, sqrt, square, subtract
from dlc.numpy.apply import ArrayLike, Operand, apply, promote_to_float, refuse

__all__ = ["batch_norm", "group_norm", "layer_norm", "rms_norm"]


def layer_norm(x: ArrayLike, scale: ArrayLike, bias: ArrayLike, /, *, epsilon: float = 1e-5) -> Any:
    """(x - mean) / √(variance + epsilon) · scale + bias over the last axis."""
    return apply(dl.LayerNormOp, *promote_to_float(x, scale, bias), axis=-1, epsilon=float(epsilon))


def rms_norm(x: ArrayLike, scale: ArrayLike, /, *, epsilon: float = 1e-6) -> Any:
    """x / √(mean of x² + epsilon) · scale over the last axis."""
    return apply(dl.RmsNormOp, *promote_to_float(x, scale), axis=-1, epsilon=float(epsilon))


def group_norm(x: ArrayLike, scale: ArrayLike, bias: ArrayLike, /, groups: int, *, epsilon: float = 1e-5) -> Any:
    """x [N, *S, C] by the mean and variance of each group of C / groups channels, then · scale + bias of each channel.

    Raises ShapeError where the channels do not divide into so many groups.
    """
    x, scale, bias = promote_to_float(x, scale, bias)
    if x.ndim < 2 or groups < 1:
        refuse(ShapeError(f"dlc.nn.group_norm: x of shape {x.shape} in {groups} groups; expected [N, *S, C]"))
    if x.shape[-1] % groups:
        refuse(ShapeError(f"dlc.nn.group_norm: {x.shape[-1]} channels in {groups} groups"))
    inner = cast(int, product(x.shape[1:-1]))  # or open
    apart = reshape(x, (x.shape[0], inner, groups, x.shape[-1] // groups))
    centred, variance = _statistics(apart, (1, 3))[1:]
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
    """x [..., C] by each channel's mean and variance, · scale + bias; and the mean and variance to go on with.

    In training they are the batch's, and the new ones are momentum · old + (1 - momentum) · the batch's; else the given
    ones, which stay as they are.
    """
    x, scale, bias, mean, variance = promote_to_float(x, scale, bias, mean, variance)
    if not training:
        return apply(dl.BatchNormOp, x, scale, bias, mean, variance, axis=-1, epsilon=float(epsilon)), mean, variance
    of_batch, centred, spread = _statistics(x, tuple(range(x.ndim - 1)))
    y = add(multiply(centred, divide(scale, sqrt(add(spread, epsilon)))), bias)
    flat = (reshape(new, scale.shape) for new in (of_batch, spread))
    kept = [add(multiply(old, momentum), multiply(new, 1 - momentum)) for old, new in zip((mean, variance), flat, strict=True)]
    return y, kept[0], kept[1]


def _statistics(x: Operand, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The mean along axes, which stay with size 1, what is left of `x`, and its variance."""
    middle = mean(x, axes, keepdims=True)
    centred = subtract(x, middle)
    return middle, centred, mean(square(centred), axes, keepdims=True)

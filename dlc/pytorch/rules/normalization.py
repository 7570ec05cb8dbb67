"""Normalization, in evaluation and in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import nn
from dlc.dialects import dl
from dlc.numpy.apply import apply, convert, promote
from dlc.pytorch.rules.contractions import channels_first, channels_last
from dlc.pytorch.rules.rule_table import RuleTable

table = RuleTable()
# Other devices store values for the gradient of a batch norm.
_NO_RESERVE = np.zeros((0,), np.uint8)


def _or_default(x: Any, size: int, value: float, like: Any) -> Any:
    """Return a parameter, or `size` copies of a default value if it is None."""
    return np.full(size, value, like.dtype) if x is None else x


def _per_channel(vector: Any, x: Any) -> Any:
    """Reshape [C] to broadcast with [N, C, *S]."""
    return dnp.reshape(vector, (-1, *(1,) * (x.ndim - 2)))


@table("layer_norm")
def layer_norm(
    x: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> Any:
    axis, shape = x.ndim - len(normalized_shape), tuple(normalized_shape)
    scale = np.ones(shape, x.dtype) if weight is None else weight
    operands = [x, scale] if bias is None else [x, scale, bias]
    # Half-precision inputs with float32 parameters are computed in float32.
    return convert(apply(dl.LayerNormOp, *promote(*operands), axis=axis, epsilon=eps), x.dtype)


@table("native_layer_norm")
def native_layer_norm(x: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    x_wide = convert(x, np.float32) if x.dtype.itemsize < 4 else x
    mean = dnp.mean(x_wide, axes, keepdims=True)
    rstd = _rsqrt(dnp.mean(dnp.square(dnp.subtract(x_wide, mean)), axes, keepdims=True), eps)
    return layer_norm(x, normalized_shape, weight, bias, eps), mean, rstd


def _rsqrt(variance: Any, eps: float) -> Any:
    return apply(dl.RsqrtOp, dnp.add(variance, eps))


@table("rms_norm")
def rms_norm(x: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    scale = np.ones(tuple(normalized_shape), x.dtype) if weight is None else weight
    epsilon = float(np.finfo(np.float32).eps) if eps is None else eps
    axis = x.ndim - len(normalized_shape)
    return convert(apply(dl.RmsNormOp, *promote(x, scale), axis=axis, epsilon=epsilon), x.dtype)


@table("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    channels = x.shape[1]
    parameters = [_or_default(weight, channels, 1, x), _or_default(bias, channels, 0, x), running_mean, running_var]
    y = apply(dl.BatchNormOp, x, *(convert(p, x.dtype) for p in parameters), axis=1, epsilon=eps)
    empty = np.zeros((0,), x.dtype)
    return y, empty, empty


def _normalize_by_batch(x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """Normalize [N, C, *S] by the statistics of each channel; also return the mean and the biased variance."""
    axes = (0, *range(2, x.ndim))
    mean = dnp.mean(x, axes)
    centred = dnp.subtract(x, _per_channel(mean, x))
    variance = dnp.mean(dnp.square(centred), axes)
    factor = _rsqrt(variance, eps)
    scale = factor if weight is None else dnp.multiply(weight, factor)
    y = dnp.multiply(centred, _per_channel(scale, x))
    return y if bias is None else dnp.add(y, _per_channel(bias, x)), mean, variance


@table("_native_batch_norm_legit_functional")
def batch_norm_functional(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    if not training:
        y, *empty = batch_norm_no_training(x, weight, bias, running_mean, running_var, momentum, eps)
        return y, *empty, running_mean, running_var
    y, mean, variance = _normalize_by_batch(x, weight, bias, eps)
    count = x.size // x.shape[1]
    unbiased = dnp.multiply(variance, count / max(count - 1, 1))
    running = [
        dnp.add(dnp.multiply(old, 1 - momentum), dnp.multiply(new, momentum))
        for old, new in ((running_mean, mean), (running_var, unbiased))
    ]
    return y, mean, _rsqrt(variance, eps), *running


@table("_batch_norm_with_update_functional")
def batch_norm_with_update(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    y, mean, rstd, *running = batch_norm_functional(x, weight, bias, running_mean, running_var, True, momentum, eps)
    return y, mean, rstd, _NO_RESERVE, *running


@table("_batch_norm_no_update")
def batch_norm_no_update(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    return *batch_norm_no_training(x, weight, bias, running_mean, running_var, momentum, eps), _NO_RESERVE


@table("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    y, mean, variance = _normalize_by_batch(x, weight, bias, eps)
    return y, mean, _rsqrt(variance, eps)


@table("group_norm")
def group_norm(
    x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    channels = x.shape[1]
    x_wide, scale, offset = promote(x, _or_default(weight, channels, 1, x), _or_default(bias, channels, 0, x))
    return convert(channels_first(nn.group_norm(channels_last(x_wide), scale, offset, num_groups, epsilon=eps)), x.dtype)


@table("native_group_norm")
def native_group_norm(x: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    rows = dnp.reshape(x, (N, group, C // group * HxW))
    mean = dnp.mean(rows, 2)
    rstd = _rsqrt(dnp.mean(dnp.square(dnp.subtract(rows, dnp.expand_dims(mean, 2))), 2), eps)
    return group_norm(x, group, weight, bias, eps), mean, rstd

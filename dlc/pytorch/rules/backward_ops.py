"""Backward operators that ATen does not decompose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dlc.numpy as dnp
from dlc import nn
from dlc.calculus.linear_maps import vjp
from dlc.numpy.apply import convert
from dlc.pytorch.rules.attention import attention
from dlc.pytorch.rules.contractions import convolution
from dlc.pytorch.rules.rule_table import RuleTable, widened

table = RuleTable()
# PyTorch draws no slopes for bounds that differ by less.
_MIN_SLOPE_GAP = 1e-6


def apply_vjp(function: Callable[..., Any], g: Any, *primals: Any) -> Any:
    """Return the cotangents of the primals for the cotangent g of the function's result."""
    return vjp(function, *primals)[1](g)


@table("convolution_backward")
def convolution_backward(
    g: Any,
    x: Any,
    weight: Any,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    def forward(x: Any, w: Any) -> Any:
        return convolution(x, w, None, stride, padding, dilation, transposed, output_padding, groups)

    gx, gw = apply_vjp(forward, g, x, weight)
    return select_gradients(output_mask, (gx, gw, dnp.sum(g, (0, *range(2, g.ndim)))))


def select_gradients(mask: Sequence[bool], values: Sequence[Any]) -> Any:
    """Return the requested gradients, and None for the others."""
    return tuple(v if is_requested else None for is_requested, v in zip(mask, values, strict=True))


@table("native_layer_norm_backward")
def layer_norm_backward(
    g: Any, x: Any, shape: Sequence[int], mean: Any, rstd: Any, weight: Any, bias: Any, output_mask: Sequence[bool]
) -> Any:
    """Gradients with n = (x - mean)·rstd, h = g·weight: gx = rstd·(h - mean(h) - n·mean(h·n)), gweight = Σ g·n, gbias = Σ g."""
    g, x, mean, rstd, weight = map(widened, (g, x, mean, rstd, weight))
    axes, batch = tuple(range(x.ndim - len(shape), x.ndim)), tuple(range(x.ndim - len(shape)))
    normal = dnp.multiply(dnp.subtract(x, mean), rstd)
    h = g if weight is None else dnp.multiply(g, weight)
    projection = dnp.multiply(normal, dnp.mean(dnp.multiply(h, normal), axes, keepdims=True))
    gx = dnp.multiply(rstd, dnp.subtract(dnp.subtract(h, dnp.mean(h, axes, keepdims=True)), projection))
    return select_gradients(output_mask, (gx, dnp.sum(dnp.multiply(g, normal), batch), dnp.sum(g, batch)))


@table("native_group_norm_backward")
def group_norm_backward(
    g: Any, x: Any, mean: Any, rstd: Any, weight: Any, N: int, C: int, HxW: int, group: int, output_mask: Sequence[bool]
) -> Any:
    """Gradients as for layer_norm, over groups of channels."""
    g, x, mean, rstd, weight = map(widened, (g, x, mean, rstd, weight))
    grouped, rows, channels = (N, group, C // group, HxW), (N, group, 1, 1), (1, group, C // group, 1)
    grouped_g = dnp.reshape(g, grouped)
    normal = dnp.multiply(dnp.subtract(dnp.reshape(x, grouped), dnp.reshape(mean, rows)), dnp.reshape(rstd, rows))
    h = grouped_g if weight is None else dnp.multiply(grouped_g, dnp.reshape(weight, channels))
    projection = dnp.multiply(normal, dnp.mean(dnp.multiply(h, normal), (2, 3), keepdims=True))
    gx = dnp.subtract(dnp.subtract(h, dnp.mean(h, (2, 3), keepdims=True)), projection)
    gx = dnp.reshape(dnp.multiply(gx, dnp.reshape(rstd, rows)), x.shape)
    gw = dnp.reshape(dnp.sum(dnp.multiply(grouped_g, normal), (0, 3)), (C,))
    return select_gradients(output_mask, (gx, gw, dnp.reshape(dnp.sum(grouped_g, (0, 3)), (C,))))


@table("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    def forward(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, attn_mask, dropout_p, is_causal, scale)

    return apply_vjp(forward, g, query, key, value)


@table("native_batch_norm_backward")
def batch_norm_backward(
    g: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Any:
    """Gradients as for layer_norm, over all axes except channels; in evaluation mode the statistics do not depend on x."""
    g, x, weight = map(widened, (g, x, weight))
    axes, shape = (0, *range(2, x.ndim)), (1, -1, *(1,) * (x.ndim - 2))
    mean = save_mean if train else running_mean
    rstd = save_invstd if train else dnp.divide(1.0, dnp.sqrt(dnp.add(running_var, eps)))
    normal = dnp.multiply(dnp.subtract(x, dnp.reshape(mean, shape)), dnp.reshape(rstd, shape))
    gb, gw = dnp.sum(g, axes), dnp.sum(dnp.multiply(g, normal), axes)
    factor = dnp.reshape(rstd if weight is None else dnp.multiply(weight, rstd), shape)
    if train:
        count = x.size // x.shape[1]
        means = dnp.add(dnp.reshape(gb, shape), dnp.multiply(normal, dnp.reshape(gw, shape)))
        g = dnp.subtract(g, dnp.multiply(means, 1 / count))
    return select_gradients(output_mask, (dnp.multiply(g, factor), gw, gb))


@table("threshold_backward")
def threshold_backward(g: Any, x: Any, threshold: float) -> Any:
    return dnp.where(dnp.greater(x, threshold), g, convert(0, g.dtype))


@table("hardshrink_backward softshrink_backward")
def shrink_backward(g: Any, x: Any, lambd: float) -> Any:
    return dnp.where(dnp.less_equal(dnp.abs(x), lambd), convert(0, g.dtype), g)


@table("rrelu_with_noise_backward")
def rrelu_backward(g: Any, x: Any, noise: Any, lower: float, upper: float, training: bool, self_is_result: bool) -> Any:
    """Multiply by the slopes that training draws; PyTorch takes equal bounds as a fixed slope, as in evaluation."""
    if training and upper - lower > _MIN_SLOPE_GAP:
        return dnp.multiply(g, noise)
    return dnp.where(dnp.greater(x, 0), g, dnp.multiply(g, (lower + upper) / 2))


@table("gelu_backward")
def gelu_backward(g: Any, x: Any, approximate: str = "none") -> Any:
    def forward(x: Any) -> Any:
        return nn.gelu(x, approximate == "tanh")

    return apply_vjp(forward, g, x)[0]


@table("_softmax_backward_data")
def softmax_backward(g: Any, y: Any, dim: int, input_dtype: Any) -> Any:
    g, y = widened(g), widened(y)
    h = dnp.multiply(g, y)
    return convert(dnp.subtract(h, dnp.multiply(y, _sum_along(h, dim))), input_dtype)


@table("_log_softmax_backward_data")
def log_softmax_backward(g: Any, y: Any, dim: int, input_dtype: Any) -> Any:
    g, y = widened(g), widened(y)
    return convert(dnp.subtract(g, dnp.multiply(dnp.exp(y), _sum_along(g, dim))), input_dtype)


def _sum_along(x: Any, dim: int) -> Any:
    """Return the sum along an axis, which is kept; PyTorch accepts a dim of 0 or -1 for rank 0."""
    return dnp.sum(x, dim, keepdims=True) if x.ndim else x

"""Matrix products and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import nn
from dlc.errors import UnsupportedError
from dlc.numpy.apply import convert, refuse
from dlc.pytorch.rules.rule_table import RuleTable, promoted
from dlc.pytorch.rules.shape_manipulation import slice_axis
from dlc.shapes.traced_dims import untraced

table = RuleTable()


@table("mm bmm matmul mv dot")
def matmul(x: Any, y: Any) -> Any:
    return dnp.matmul(x, y)


@table("linear")
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    return _plus(dnp.matmul(x, dnp.transpose(weight)), bias)


def _plus(product: Any, bias: Any) -> Any:
    return product if bias is None else dnp.add(product, bias)


@table("addmm addmv baddbmm")
def addmm(bias: Any, x: Any, y: Any, beta: float = 1, alpha: float = 1) -> Any:
    product = dnp.matmul(x, y)
    if product.dtype.kind in "iu":
        # PyTorch truncates the factors of integer products.
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else dnp.multiply(product, alpha)
    return dnp.add(product, bias if beta == 1 else dnp.multiply(bias, beta)) if beta else product


@table("_scaled_mm")
def scaled_mm(
    x: Any,
    y: Any,
    scale_x: Any,
    scale_y: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """Multiply float8 matrices, and scale the product: by scalars, or rows and columns by vectors."""
    if scale_x.dtype != np.float32:
        raise UnsupportedError(f"_scaled_mm: scales of {scale_x.dtype.name}; expected float32 scales of tensors or rows")
    product = dnp.matmul(dnp.astype(x, np.float32), dnp.astype(y, np.float32))
    scaled = dnp.multiply(dnp.multiply(product, scale_x), scale_y)
    scaled = scaled if bias is None else dnp.add(scaled, dnp.astype(bias, np.float32))
    scaled = scaled if scale_result is None else dnp.multiply(scaled, scale_result)
    return dnp.astype(scaled, x.dtype if out_dtype is None else out_dtype)


@table("addbmm")
def addbmm(bias: Any, x: Any, y: Any, beta: float = 1, alpha: float = 1) -> Any:
    """Add the batch of products to bias: one product that contracts the batch axis as well."""
    rows = dnp.reshape(dnp.moveaxis(x, 0, 1), (x.shape[1], x.shape[0] * x.shape[2]))
    return addmm(bias, rows, dnp.reshape(y, (y.shape[0] * y.shape[1], y.shape[2])), beta, alpha)


@table("outer ger")
def outer(x: Any, y: Any) -> Any:
    return dnp.outer(*promoted(x, y))


@table("einsum")
def einsum(equation: str, operands: Sequence[Any], path: Any = None) -> Any:
    return dnp.einsum(equation, *operands)


def channels_last(x: Any) -> Any:
    """Transpose [N, C, *S] → [N, *S, C]."""
    return dnp.moveaxis(x, 1, -1)


def channels_first(x: Any) -> Any:
    """Transpose [N, *S, C] → [N, C, *S]."""
    return dnp.moveaxis(x, -1, 1)


def per_spatial_axis(sizes: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return one value for each of `count` spatial axes; a single value is repeated."""
    axis_sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    return axis_sizes * count if len(axis_sizes) == 1 else axis_sizes


@table("convolution")
def convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    rank = weight.ndim - 2
    if x.ndim == rank + 1:
        batch = dnp.expand_dims(x, 0)
        return dnp.squeeze(convolution(batch, weight, bias, stride, padding, dilation, transposed, output_padding, groups), 0)
    strides, pads, dilations = (per_spatial_axis(v, rank) for v in (stride, padding, dilation))
    order = tuple(range(2, rank + 2))
    if not transposed:
        w = dnp.permute_dims(weight, (*order, 1, 0))
        pad_pairs = [(p, p) for p in pads]
        y = nn.conv(channels_last(x), w, bias, strides=strides, padding=pad_pairs, dilations=dilations, groups=groups)
        return channels_first(y)
    w = dnp.permute_dims(weight, (*order, 0, 1))
    y = nn.conv_transpose(channels_last(x), w, strides=strides, dilations=dilations, groups=groups)
    return channels_first(_plus(_trim_padding(y, pads, per_spatial_axis(output_padding, rank)), bias))


@table("_convolution _convolution.deprecated")
def convolution_with_flags(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *flags_of_cudnn: bool,
) -> Any:
    return convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@table("conv_tbc")
def conv_tbc(x: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    """Convolve x [time, batch, C] with weight [taps, C, D]."""
    y = nn.conv(dnp.swapaxes(x, 0, 1), weight, bias, strides=(1,), padding=[(pad, pad)], dilations=(1,))
    return dnp.swapaxes(y, 0, 1)


def _trim_padding(y: Any, padding: Sequence[int], output_padding: Sequence[int]) -> Any:
    """Trim the padding off a full transposed convolution; an `output_padding` beyond it appends zeros."""
    num_zeros = [max(0, extra - p) for p, extra in zip(padding, output_padding, strict=True)]
    if any(num_zeros):
        y = dnp.pad(y, [(0, 0), *((0, m) for m in num_zeros), (0, 0)])
    for axis, (p, extra, m) in enumerate(zip(padding, output_padding, num_zeros, strict=True), start=1):
        y = slice_axis(y, axis, p, y.shape[axis] - m - p + extra) if p else y
    return y


@table("conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding")
def conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    rank = weight.ndim - 2
    if isinstance(padding, str):
        total = [
            (k - 1) * d if padding == "same" else 0
            for k, d in zip(weight.shape[2:], per_spatial_axis(dilation, rank), strict=True)
        ]
        x = dnp.pad(x, [(0, 0)] * (x.ndim - rank) + [(t // 2, t - t // 2) for t in total])
        padding = 0
    per_axis_options = (per_spatial_axis(stride, rank), per_spatial_axis(padding, rank), per_spatial_axis(dilation, rank))
    return convolution(x, weight, bias, *per_axis_options, False, (0,) * rank, groups)


@table("conv_transpose1d conv_transpose2d.input conv_transpose3d.input")
def conv_transpose(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Any:
    rank = weight.ndim - 2
    strides, pads, dilations, extra = (per_spatial_axis(v, rank) for v in (stride, padding, dilation, output_padding))
    return convolution(x, weight, bias, strides, pads, dilations, True, extra, groups)


@table("_trilinear")
def trilinear(
    x: Any,
    y: Any,
    z: Any,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    """Return Σ x·y·z over some axes, after expanding the operands."""
    expands = (expand1, expand2, expand3)
    rank = x.ndim + len(expand1)
    operand_axes = [[a for a in range(rank) if a not in expand] for expand in expands]
    result_axes = [a for a in range(rank) if a not in sumdim]
    if unknown := set(result_axes).difference(*operand_axes):
        refuse(UnsupportedError(f"_trilinear: no operand has the result's axis {min(unknown)}; remove it from expand1, 2 or 3"))
    letters = ["".join(chr(ord("a") + a) for a in axes) for axes in (*operand_axes, result_axes)]
    return dnp.einsum(f"{letters[0]},{letters[1]},{letters[2]}->{letters[3]}", x, y, z)


@table("_int_mm")
def int_mm(x: Any, y: Any) -> Any:
    return dnp.matmul(convert(x, np.int32), convert(y, np.int32))


@table("mm.dtype bmm.dtype")
def matmul_as(x: Any, y: Any, out_dtype: Any) -> Any:
    return dnp.matmul(convert(x, out_dtype), convert(y, out_dtype))


@table("_addmm_activation")
def addmm_activation(bias: Any, x: Any, y: Any, beta: float = 1, alpha: float = 1, use_gelu: bool = False) -> Any:
    pre_activation = addmm(bias, x, y, beta, alpha)
    return nn.gelu(pre_activation) if use_gelu else nn.relu(pre_activation)


@table("_weight_norm")
def weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    axes = tuple(a for a in range(v.ndim) if a != dim % v.ndim)
    return dnp.multiply(v, dnp.divide(g, dnp.sqrt(dnp.sum(dnp.square(v), axes, keepdims=True))))


@table("_weight_norm_interface_backward")
def weight_norm_backward(g: Any, v: Any, scale: Any, norms: Any, dim: int) -> Any:
    """Gradients of w = v·scale/norms: gv = scale/norms·(g - v·Σ g·v/norms²), gscale = Σ g·v/norms."""
    axes = tuple(a for a in range(v.ndim) if a != dim % v.ndim)
    norms = dnp.reshape(norms, scale.shape)
    scale_gradient = dnp.divide(dnp.sum(dnp.multiply(g, v), axes, keepdims=True), norms)
    orthogonal = dnp.subtract(g, dnp.multiply(v, dnp.divide(scale_gradient, norms)))
    return dnp.multiply(dnp.divide(scale, norms), orthogonal), scale_gradient


@table("_cdist_backward")
def cdist_backward(g: Any, x: Any, y: Any, p: float, distances: Any) -> Any:
    """Gradient of (Σ |x - y|ᵖ)^(1/p) with respect to x: sign(x - y)·|x - y|^(p-1)·distance^(1-p).

    It is 0 for distance 0, for the components that are 0 where p < 1, and for p = 0, whose distance is a count. For p = ∞ it is
    the sign of the largest components.
    """
    if p == 0 or 0 in untraced(g.shape):
        return dnp.zeros(x.shape, x.dtype)
    difference = dnp.subtract(dnp.expand_dims(x, -2), dnp.expand_dims(y, -3))
    magnitude = dnp.abs(difference)
    if p == math.inf:
        is_largest = dnp.equal(magnitude, dnp.expand_dims(distances, -1))
        terms = dnp.multiply(dnp.where(is_largest, dnp.sign(difference), convert(0, x.dtype)), dnp.expand_dims(g, -1))
        return dnp.sum(terms, -2)
    if p != 2:
        is_zero = dnp.equal(magnitude, 0)
        power = dnp.power(dnp.where(is_zero, convert(1, x.dtype), magnitude), p - 1)
        difference = dnp.multiply(dnp.sign(difference), power)
    is_zero = dnp.equal(distances, 0)
    factor = dnp.divide(g, dnp.power(dnp.where(is_zero, convert(1, x.dtype), distances), p - 1))
    factor = dnp.where(is_zero, convert(0, x.dtype), factor)
    return dnp.sum(dnp.multiply(difference, dnp.expand_dims(factor, -1)), -2)


@table("_pdist_backward")
def pdist_backward(g: Any, x: Any, p: float, distances: Any) -> Any:
    """Gradient of the distances of all pairs of rows, each of which the symmetric matrix of distances has twice."""
    rows, columns = np.triu_indices(x.shape[0], 1)
    zeros = dnp.zeros((x.shape[0], x.shape[0]), x.dtype)
    matrices = [dnp.at(dnp.at(zeros)[rows, columns].set(v))[columns, rows].set(v) for v in (g, distances)]
    return cdist_backward(matrices[0], x, x, p, matrices[1])


@table("_cdist_forward cdist")
def cdist(x: Any, y: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    difference = dnp.abs(dnp.subtract(dnp.expand_dims(x, -2), dnp.expand_dims(y, -3)))
    if p == 2:
        return dnp.sqrt(dnp.sum(dnp.square(difference), -1))
    if p == math.inf:
        return dnp.max(difference, -1)
    if p == 0:
        return dnp.sum(convert(dnp.not_equal(difference, 0), x.dtype), -1)
    return dnp.sum(difference, -1) if p == 1 else dnp.power(dnp.sum(dnp.power(difference, p), -1), 1 / p)


@table("_pdist_forward pdist")
def pdist(x: Any, p: float = 2.0) -> Any:
    return cdist(x, x, p)[np.triu_indices(x.shape[0], 1)]

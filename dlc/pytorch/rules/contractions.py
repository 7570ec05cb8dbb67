"""Sums of products: matrices, convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import nn
from dlc.numpy.apply import convert
from dlc.pytorch.rules.shaping import sliced
from dlc.pytorch.rules.table import Table, promoted

table = Table()


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
    product = product if alpha == 1 else dnp.multiply(product, alpha)
    return dnp.add(product, bias if beta == 1 else dnp.multiply(bias, beta)) if beta else product


@table("addbmm")
def addbmm(bias: Any, x: Any, y: Any, beta: float = 1, alpha: float = 1) -> Any:
    """The products of all pairs of matrices are added, which is one product along both axes."""
    rows = dnp.reshape(dnp.moveaxis(x, 0, 1), (x.shape[1], x.shape[0] * x.shape[2]))
    return addmm(bias, rows, dnp.reshape(y, (y.shape[0] * y.shape[1], y.shape[2])), beta, alpha)


@table("outer ger")
def outer(x: Any, y: Any) -> Any:
    return dnp.outer(*promoted(x, y))


@table("einsum")
def einsum(equation: str, operands: Sequence[Any], path: Any = None) -> Any:
    return dnp.einsum(equation, *operands)


def channels_last(x: Any) -> Any:
    """[N, C, *S] → [N, *S, C]"""
    return dnp.moveaxis(x, 1, -1)


def channels_first(x: Any) -> Any:
    """[N, *S, C] → [N, C, *S]"""
    return dnp.moveaxis(x, -1, 1)


def spread(sizes: int | Sequence[int], count: int) -> tuple[int, ...]:
    """One number for each spatial axis."""
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    return given * count if len(given) == 1 else given


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
        alone = dnp.expand_dims(x, 0)
        return dnp.squeeze(convolution(alone, weight, bias, stride, padding, dilation, transposed, output_padding, groups), 0)
    steps, edges, distances = (spread(v, rank) for v in (stride, padding, dilation))
    order = tuple(range(2, rank + 2))
    if not transposed:
        w = dnp.permute_dims(weight, (*order, 1, 0))
        sides = [(p, p) for p in edges]
        y = nn.conv(channels_last(x), w, bias, strides=steps, padding=sides, dilations=distances, groups=groups)
        return channels_first(y)
    w = dnp.permute_dims(weight, (*order, 0, 1))
    y = nn.conv_transpose(channels_last(x), w, strides=steps, dilations=distances, groups=groups)
    return channels_first(_plus(_cropped(y, edges, spread(output_padding, rank)), bias))


def _cropped(y: Any, padding: Sequence[int], output_padding: Sequence[int]) -> Any:
    """A full transposed convolution without what padding takes off its ends, where `output_padding` may need zeros."""
    missing = [max(0, more - p) for p, more in zip(padding, output_padding, strict=True)]
    if any(missing):
        y = dnp.pad(y, [(0, 0), *((0, m) for m in missing), (0, 0)])
    for axis, (p, more, m) in enumerate(zip(padding, output_padding, missing, strict=True), start=1):
        y = sliced(y, axis, p, y.shape[axis] - m - p + more) if p else y
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
        total = [(k - 1) * d if padding == "same" else 0 for k, d in zip(weight.shape[2:], spread(dilation, rank), strict=True)]
        x = dnp.pad(x, [(0, 0)] * (x.ndim - rank) + [(t // 2, t - t // 2) for t in total])
        padding = 0
    settings = (spread(stride, rank), spread(padding, rank), spread(dilation, rank))
    return convolution(x, weight, bias, *settings, False, (0,) * rank, groups)


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
    steps, edges, distances, more = (spread(v, rank) for v in (stride, padding, dilation, output_padding))
    return convolution(x, weight, bias, steps, edges, distances, True, more, groups)


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
    """Σ x·y·z along some axes, once each has got those of the others."""
    expands = (expand1, expand2, expand3)
    rank = x.ndim + len(expand1)
    names = [[a for a in range(rank) if a not in expand] for expand in expands]
    kept = [a for a in range(rank) if a not in sumdim]
    letters = ["".join(chr(ord("a") + a) for a in axes) for axes in (*names, kept)]
    return dnp.einsum(f"{letters[0]},{letters[1]},{letters[2]}->{letters[3]}", x, y, z)


@table("_int_mm")
def int_mm(x: Any, y: Any) -> Any:
    return dnp.matmul(convert(x, np.int32), convert(y, np.int32))


@table("mm.dtype bmm.dtype")
def matmul_as(x: Any, y: Any, out_dtype: Any) -> Any:
    return dnp.matmul(convert(x, out_dtype), convert(y, out_dtype))


@table("_addmm_activation")
def addmm_activation(bias: Any, x: Any, y: Any, beta: float = 1, alpha: float = 1, use_gelu: bool = False) -> Any:
    found = addmm(bias, x, y, beta, alpha)
    return nn.gelu(found) if use_gelu else nn.relu(found)


@table("_weight_norm")
def weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    axes = tuple(a for a in range(v.ndim) if a != dim % v.ndim)
    return dnp.multiply(v, dnp.divide(g, dnp.sqrt(dnp.sum(dnp.square(v), axes, keepdims=True))))


@table("_weight_norm_interface_backward")
def weight_norm_backward(g: Any, v: Any, scale: Any, norms: Any, dim: int) -> Any:
    """Of w = v·scale/norms: gv = scale/norms·(g - v·Σ g·v/norms²), gscale = Σ g·v/norms."""
    axes = tuple(a for a in range(v.ndim) if a != dim % v.ndim)
    norms = dnp.reshape(norms, scale.shape)
    along = dnp.divide(dnp.sum(dnp.multiply(g, v), axes, keepdims=True), norms)
    inside = dnp.subtract(g, dnp.multiply(v, dnp.divide(along, norms)))
    return dnp.multiply(dnp.divide(scale, norms), inside), along


@table("_cdist_backward")
def cdist_backward(g: Any, x: Any, y: Any, p: float, distances: Any) -> Any:
    """Of (Σ |x - y|ᵖ)^(1/p) by x: (x - y)·|x - y|^(p-2)·distance^(1-p); 0 where there is no distance."""
    apart = dnp.subtract(dnp.expand_dims(x, -2), dnp.expand_dims(y, -3))
    if p != 2:
        size = dnp.abs(apart)
        apart = dnp.multiply(dnp.sign(apart), dnp.power(size, p - 1) if p != 1 else convert(dnp.not_equal(size, 0), x.dtype))
    none = dnp.equal(distances, 0)
    share = dnp.divide(g, dnp.power(dnp.where(none, convert(1, x.dtype), distances), p - 1))
    share = dnp.where(none, convert(0, x.dtype), share)
    return dnp.sum(dnp.multiply(apart, dnp.expand_dims(share, -1)), -2)


@table("_cdist_forward cdist")
def cdist(x: Any, y: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    apart = dnp.abs(dnp.subtract(dnp.expand_dims(x, -2), dnp.expand_dims(y, -3)))
    if p == 2:
        return dnp.sqrt(dnp.sum(dnp.square(apart), -1))
    if p == float("inf"):
        return dnp.max(apart, -1)
    if p == 0:
        return dnp.sum(convert(dnp.not_equal(apart, 0), x.dtype), -1)
    return dnp.sum(apart, -1) if p == 1 else dnp.power(dnp.sum(dnp.power(apart, p), -1), 1 / p)


@table("_pdist_forward pdist")
def pdist(x: Any, p: float = 2.0) -> Any:
    return cdist(x, x, p)[np.triu_indices(x.shape[0], 1)]

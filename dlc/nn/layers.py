"""Layers: dense, convolution, embedding and dropout; images are channels-last, [N, H, W, C]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc.dialects import dl
from dlc.errors import ShapeError
from dlc.nn.pooling import Padding, pad_for_windows, per_spatial_axis
from dlc.numpy import add, divide, matmul, take, where
from dlc.numpy.apply import ArrayLike, apply, promote, promote_to_float, refuse
from dlc.random import bernoulli

__all__ = ["conv", "conv_transpose", "dense", "dropout", "embedding"]


def dense(x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None, /) -> Any:
    """Return x · w + b for x [..., I] and w [I, O]."""
    product = matmul(x, w)
    return product if b is None else add(product, b)


def conv(
    x: ArrayLike,
    w: ArrayLike,
    b: ArrayLike | None = None,
    /,
    *,
    strides: int | Sequence[int] = 1,
    padding: Padding = "valid",
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """Return the convolution of x [N, *S, C] with w [*K, C / groups, O], plus b [O]: [N, *S', O].

    `padding` "same" gives S' = ceil(S / stride), with the odd element of padding at the end. ShapeError names the user's line.
    """
    x, w = promote(x, w)
    axis_strides, axis_dilations = per_spatial_axis(strides, x.ndim - 2), per_spatial_axis(dilations, x.ndim - 2)
    x = pad_for_windows(x, w.shape[:-2], axis_strides, axis_dilations, padding, 0.0)
    product = apply(dl.ConvOp, x, w, strides=axis_strides, dilations=axis_dilations, groups=groups)
    return product if b is None else add(product, b)


def conv_transpose(
    x: ArrayLike,
    w: ArrayLike,
    b: ArrayLike | None = None,
    /,
    *,
    strides: int | Sequence[int] = 1,
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """Return the transposed convolution of x [N, *S, C] with w [*K, C, O / groups], plus b [O]: [N, *S', O].

    It is the adjoint of `conv` without padding: S' = (S - 1) · stride + (K - 1) · dilation + 1. Slice the result for "same"
    padding.
    """
    x, w = promote(x, w)
    axis_strides, axis_dilations = per_spatial_axis(strides, x.ndim - 2), per_spatial_axis(dilations, x.ndim - 2)
    product = apply(dl.ConvTransposeOp, x, w, strides=axis_strides, dilations=axis_dilations, groups=groups)
    return product if b is None else add(product, b)


def embedding(table: ArrayLike, indices: ArrayLike, /) -> Any:
    """Return the rows of a table [V, D] at integer indices [...]: [..., D]."""
    return take(table, indices, axis=0)


def dropout(key: ArrayLike, x: ArrayLike, /, rate: float, *, reuse: bool = False) -> Any:
    """Set elements of `x` to 0 with probability `rate` < 1, and divide the others by 1 - rate.

    `reuse` allows drawing from the key again, as in `dlc.random`. Raises ShapeError for another rate.
    """
    (x,) = promote_to_float(x)
    if not 0 <= rate < 1:
        refuse(ShapeError(f"dlc.nn.dropout: rate {rate}; expected a number in [0, 1)"))
    return where(bernoulli(key, 1 - rate, x.shape, reuse=reuse), divide(x, 1 - rate), 0)

"""Layers: products with weights, entries of a table, and dropout; images are channels-last, [N, H, W, C]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc.dialects import dl
from dlc.errors import ShapeError
from dlc.nn.windows import Padding, padded, spread
from dlc.numpy import add, divide, matmul, take, where
from dlc.numpy.apply import ArrayLike, apply, promote, promote_to_float, refuse
from dlc.random import bernoulli

__all__ = ["conv", "conv_transpose", "dense", "dropout", "embedding"]


def dense(x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None, /) -> Any:
    """x · w + b, for x [..., I] and w [I, O]."""
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
    """The convolution of x [N, *S, C] with w [*K, C / groups, O], plus b [O]: [N, *S', O].

    `padding` "same" gives S' = ceil(S / stride), with the odd element after. Raises ShapeError naming the line.
    """
    x, w = promote(x, w)
    steps, distances = spread(strides, x.ndim - 2), spread(dilations, x.ndim - 2)
    x = padded(x, w.shape[:-2], steps, distances, padding, 0.0)
    product = apply(dl.ConvOp, x, w, strides=steps, dilations=distances, groups=groups)
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
    """What `conv` maps to x, the other way: x [N, *S, C] and w [*K, C, O / groups], plus b [O], make [N, *S', O].

    S' = (S - 1) · stride + (K - 1) · dilation + 1, of which a slice is what "same" would give.
    """
    x, w = promote(x, w)
    steps, distances = spread(strides, x.ndim - 2), spread(dilations, x.ndim - 2)
    product = apply(dl.ConvTransposeOp, x, w, strides=steps, dilations=distances, groups=groups)
    return product if b is None else add(product, b)


def embedding(table: ArrayLike, indices: ArrayLike, /) -> Any:
    """The rows of a table [V, D] that integers name: [..., D]."""
    return take(table, indices, axis=0)


def dropout(key: ArrayLike, x: ArrayLike, /, rate: float, *, reuse: bool = False) -> Any:
    """`x` with elements 0 by the probability `rate`, a number below 1, and the others divided by 1 - rate.

    `reuse` says that the key is drawn from again, as `dlc.random` has it. Raises ShapeError for another rate.
    """
    (x,) = promote_to_float(x)
    if not 0 <= rate < 1:
        refuse(ShapeError(f"dlc.nn.dropout: rate {rate}; expected a number of [0, 1)"))
    return where(bernoulli(key, 1 - rate, x.shape, reuse=reuse), divide(x, 1 - rate), 0)

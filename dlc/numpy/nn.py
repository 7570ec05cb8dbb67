"""Layers of neural networks; images are channels-last: [N, H, W, C]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.errors import ShapeError
from dlc.frontend.trace import at_user_line
from dlc.numpy.apply import ArrayLike, Operand, apply, operand, promote, promote_to_float
from dlc.numpy.joining import pad

# "valid", "same", or (before, after) for each spatial axis.
Padding = str | Sequence[tuple[int, int]]


def relu(x: ArrayLike, /) -> Any:
    """max(x, 0)."""
    return apply(dl.ReluOp, operand(x))


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


def layer_norm(x: ArrayLike, scale: ArrayLike, bias: ArrayLike, /, *, epsilon: float = 1e-5) -> Any:
    """(x - mean) / √(variance + epsilon) · scale + bias over the last axis."""
    return apply(dl.LayerNormOp, *promote_to_float(x, scale, bias), axis=-1, epsilon=epsilon)


def conv(
    x: ArrayLike,
    w: ArrayLike,
    /,
    *,
    strides: Sequence[int] | None = None,
    padding: Padding = "valid",
    dilations: Sequence[int] | None = None,
    groups: int = 1,
) -> Any:
    """The convolution of x [N, *S, C] with w [*K, C / groups, O]: [N, *S', O].

    `padding` "same" gives S' = ceil(S / stride), with the odd element after. Raises ShapeError naming the line.
    """
    x, w = promote(x, w)
    spatial = x.ndim - 2
    strides = tuple(strides or (1,) * spatial)
    dilations = tuple(dilations or (1,) * spatial)
    x = _padded(x, w.shape[:-2], strides, dilations, padding, 0.0)
    return apply(dl.ConvOp, x, w, strides=strides, dilations=dilations, groups=groups)


def max_pool(x: ArrayLike, /, kernel: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "valid") -> Any:
    """The largest of each window of x [N, *S, C]; strides are the kernel's sizes unless given."""
    x = operand(x)
    lowest = -np.inf if x.dtype.kind not in "iu" else float(np.iinfo(x.dtype).min)
    return _pooled(dl.MaxPoolOp, x, kernel, strides, padding, lowest)


def avg_pool(x: ArrayLike, /, kernel: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "valid") -> Any:
    """The mean of each window of x [N, *S, C], padding counted as zeros; strides are the kernel's sizes unless given."""
    (x,) = promote_to_float(x)
    total = _pooled(dl.SumPoolOp, x, kernel, strides, padding, 0.0)
    return apply(dl.MulOp, *promote(total, 1.0 / int(np.prod(kernel))))


def _pooled(
    op: type[DlOp], x: Operand, kernel: Sequence[int], strides: Sequence[int] | None, padding: Padding, fill: float
) -> Operand:
    strides, dilations = tuple(strides or kernel), (1,) * len(kernel)
    x = _padded(x, tuple(kernel), strides, dilations, padding, fill)
    return apply(op, x, kernel=tuple(kernel), strides=strides, dilations=dilations)


def _padded(
    x: Operand, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: Padding, fill: float
) -> Operand:
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            raise at_user_line(ShapeError(f'padding {padding!r}; expected "valid", "same" or (before, after) per spatial axis'))
        sizes = x.shape[1:-1]
        missing = [
            max(0, (-(-s // a) - 1) * a + (k - 1) * d + 1 - s) if padding == "same" else 0
            for s, k, a, d in zip(sizes, kernel, strides, dilations, strict=True)
        ]
        padding = [(m // 2, m - m // 2) for m in missing]
    return pad(x, [(0, 0), *padding, (0, 0)], constant_values=fill) if any(map(any, padding)) else x

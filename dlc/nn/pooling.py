"""Pooling of images [N, *S, C]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.errors import ShapeError
from dlc.numpy import multiply, pad
from dlc.numpy.apply import ArrayLike, Operand, apply, in_float32_or_wider, operand, promote_to_float, refuse

__all__ = ["avg_pool", "max_pool"]

# "valid", "same", or the padding (before, after) of each spatial axis.
Padding = str | Sequence[tuple[int, int]]


def max_pool(
    x: ArrayLike, /, kernel: int | Sequence[int], strides: int | Sequence[int] | None = None, padding: Padding = "valid"
) -> Any:
    """Return the maximum of each window of x [N, *S, C]; strides default to the kernel sizes."""
    x = operand(x)
    lowest = float(np.iinfo(x.dtype).min) if x.dtype.kind in "iu" else -np.inf
    return _reduce_windows(dl.MaxPoolOp, x, kernel, strides, padding, lowest)


def avg_pool(
    x: ArrayLike, /, kernel: int | Sequence[int], strides: int | Sequence[int] | None = None, padding: Padding = "valid"
) -> Any:
    """Return the mean of each window of x [N, *S, C], with padding counted as zeros; strides default to the kernel sizes."""

    @in_float32_or_wider
    def mean(x: Operand) -> Any:
        total = _reduce_windows(dl.SumPoolOp, x, kernel, strides, padding, 0.0)
        return multiply(total, 1.0 / math.prod(per_spatial_axis(kernel, x.ndim - 2)))

    return mean(*promote_to_float(x))


def per_spatial_axis(sizes: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return one value for each of `count` spatial axes; an integer is repeated."""
    return (sizes,) * count if isinstance(sizes, int) else tuple(sizes)


def pad_for_windows(
    x: Operand, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: Padding, fill: float
) -> Operand:
    """Pad `x` for windows. Raises ShapeError for a wrong rank or padding."""
    if x.ndim - 2 != len(kernel):
        refuse(
            ShapeError(f"array of shape {x.shape}, kernel {tuple(kernel)}; expected [N, *S, C], one spatial axis for each size")
        )
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            refuse(ShapeError(f'padding {padding!r}; expected "valid", "same" or (before, after) per spatial axis'))
        total_padding = [
            max(0, (-(-s // a) - 1) * a + (k - 1) * d + 1 - s) if padding == "same" else 0
            for s, k, a, d in zip(x.shape[1:-1], kernel, strides, dilations, strict=True)
        ]
        padding = [(m // 2, m - m // 2) for m in total_padding]
    return pad(x, [(0, 0), *padding, (0, 0)], constant_values=fill) if any(map(any, padding)) else x


def _reduce_windows(
    op: type[DlOp],
    x: Operand,
    kernel: int | Sequence[int],
    strides: int | Sequence[int] | None,
    padding: Padding,
    fill: float,
) -> Operand:
    sizes = per_spatial_axis(kernel, x.ndim - 2)
    axis_strides, axis_dilations = per_spatial_axis(strides or sizes, x.ndim - 2), (1,) * len(sizes)
    x = pad_for_windows(x, sizes, axis_strides, axis_dilations, padding, fill)
    return apply(op, x, kernel=sizes, strides=axis_strides, dilations=axis_dilations)

"""Windows over images [N, *S, C]: their padding, and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.errors import ShapeError
from dlc.numpy import multiply, pad
from dlc.numpy.apply import ArrayLike, Operand, apply, operand, promote_to_float, refuse

__all__ = ["avg_pool", "max_pool"]

# "valid", "same", or (before, after) for each spatial axis.
Padding = str | Sequence[tuple[int, int]]


def max_pool(
    x: ArrayLike, /, kernel: int | Sequence[int], strides: int | Sequence[int] | None = None, padding: Padding = "valid"
) -> Any:
    """The largest of each window of x [N, *S, C]; strides are the kernel's sizes unless given."""
    x = operand(x)
    lowest = float(np.iinfo(x.dtype).min) if x.dtype.kind in "iu" else -np.inf
    return _pooled(dl.MaxPoolOp, x, kernel, strides, padding, lowest)


def avg_pool(
    x: ArrayLike, /, kernel: int | Sequence[int], strides: int | Sequence[int] | None = None, padding: Padding = "valid"
) -> Any:
    """The mean of each window of x [N, *S, C], padding counted as zeros; strides are the kernel's sizes unless given."""
    (x,) = promote_to_float(x)
    return multiply(_pooled(dl.SumPoolOp, x, kernel, strides, padding, 0.0), 1.0 / math.prod(spread(kernel, x.ndim - 2)))


def spread(sizes: int | Sequence[int], count: int) -> tuple[int, ...]:
    """One number for each spatial axis."""
    return (sizes,) * count if isinstance(sizes, int) else tuple(sizes)


def padded(
    x: Operand, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: Padding, fill: float
) -> Operand:
    """`x` with what a window needs around it. Raises ShapeError for another padding, or rank, than there is."""
    if x.ndim - 2 != len(kernel):
        refuse(ShapeError(f"an array of shape {x.shape} for windows {tuple(kernel)}; expected [N, *S, C], S for each"))
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            refuse(ShapeError(f'padding {padding!r}; expected "valid", "same" or (before, after) per spatial axis'))
        missing = [
            max(0, (-(-s // a) - 1) * a + (k - 1) * d + 1 - s) if padding == "same" else 0
            for s, k, a, d in zip(x.shape[1:-1], kernel, strides, dilations, strict=True)
        ]
        padding = [(m // 2, m - m // 2) for m in missing]
    return pad(x, [(0, 0), *padding, (0, 0)], constant_values=fill) if any(map(any, padding)) else x


def _pooled(
    op: type[DlOp],
    x: Operand,
    kernel: int | Sequence[int],
    strides: int | Sequence[int] | None,
    padding: Padding,
    fill: float,
) -> Operand:
    sizes = spread(kernel, x.ndim - 2)
    steps, distances = spread(strides or sizes, x.ndim - 2), (1,) * len(sizes)
    x = padded(x, sizes, steps, distances, padding, fill)
    return apply(op, x, kernel=sizes, strides=steps, dilations=distances)

"""Reductions along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.numpy.apply import ArrayLike, Operand, apply, convert, operand, promote_to_float
from dlc.numpy.elementwise import sqrt, square, subtract

Axes = int | Sequence[int] | None


def _axes(x: Operand, axis: Axes) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def _reduce(op: type[DlOp], x: Operand, axis: Axes, keepdims: bool) -> Any:
    axes = _axes(x, axis)
    return apply(op, x, axes=axes, keepdims=keepdims) if axes else x


def _summable(x: ArrayLike) -> Operand:
    """Bools and small integers are summed as int64, as NumPy does."""
    x = operand(x)
    return convert(x, np.int64 if x.dtype.kind in "ib" else np.uint64) if x.dtype.kind in "iub" else x


def sum(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The sum along `axis` (all axes if None); integers are summed as 64-bit."""
    return _reduce(dl.ReduceSumOp, _summable(x), axis, keepdims)


def prod(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The product along `axis` (all axes if None); integers are multiplied as 64-bit."""
    return _reduce(dl.ReduceProdOp, _summable(x), axis, keepdims)


def max(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The largest along `axis` (all axes if None); NaN if one is."""
    return _reduce(dl.ReduceMaxOp, operand(x), axis, keepdims)


def min(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The smallest along `axis` (all axes if None); NaN if one is."""
    return _reduce(dl.ReduceMinOp, operand(x), axis, keepdims)


def any(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Whether one along `axis` is true."""
    return _reduce(dl.ReduceAnyOp, convert(x, np.bool_), axis, keepdims)


def all(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Whether all along `axis` are true."""
    return _reduce(dl.ReduceAllOp, convert(x, np.bool_), axis, keepdims)


def mean(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The mean along `axis` (all axes if None); integers become float64 first."""
    (x,) = promote_to_float(x)
    return _reduce(dl.ReduceMeanOp, x, axis, keepdims)


def var(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The variance along `axis`: the mean of squared distances from the mean."""
    return mean(square(subtract(x, mean(x, axis, keepdims=True))), axis, keepdims=keepdims)


def std(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The standard deviation along `axis`: √var."""
    return sqrt(var(x, axis, keepdims=keepdims))


def argmax(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the largest stands along `axis`, the first of equals; None: in the flattened array."""
    return _arg(dl.ArgmaxOp, operand(x), axis, keepdims)


def argmin(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the smallest stands along `axis`, the first of equals; None: in the flattened array."""
    return _arg(dl.ArgminOp, operand(x), axis, keepdims)


def _arg(op: type[DlOp], x: Operand, axis: int | None, keepdims: bool) -> Any:
    if axis is not None:
        return apply(op, x, axis=axis, keepdims=keepdims)
    found = apply(op, apply(dl.ReshapeOp, x, shape=(x.size,)), axis=0, keepdims=False)
    return apply(dl.ReshapeOp, found, shape=(1,) * x.ndim) if keepdims else found

"""Along an axis: running sums and products, differences, and sums over windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dims import Dim
from dlc.errors import ShapeError, UnsupportedError
from dlc.numpy.apply import AnyDType, ArrayLike, Operand, along, apply, axis_of, convert, is_floating, operand, promote, refuse
from dlc.numpy.by_parts import by_parts
from dlc.numpy.functions.comparing import isnan, not_equal
from dlc.numpy.functions.elementwise import add, multiply, subtract, where
from dlc.numpy.functions.indexing import getitem
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.reductions import sum
from dlc.numpy.functions.shaping import broadcast_to, flip, part, ravel, reshape

__all__ = [
    "convolve", "correlate", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff", "nancumprod", "nancumsum",
    "trapezoid",
]  # fmt: skip


def _running(op: type[DlOp], x: ArrayLike, axis: int | None, dtype: Any) -> Any:
    x, axis = along(op.name.removeprefix("dl."), x, axis)
    if dtype is not None:
        x = convert(x, dtype)
    elif x.dtype.kind in "biu":
        x = convert(x, np.uint64 if x.dtype.kind == "u" else np.int64)
    return apply(op, x, axis=axis)


@by_parts("x")
def cumsum(x: ArrayLike, /, axis: int | None = None, dtype: AnyDType = None) -> Any:
    """Each element's sum with those before it; integers are summed as 64-bit. None: of the flattened array."""
    return _running(dl.CumsumOp, x, axis, dtype)


def cumprod(x: ArrayLike, /, axis: int | None = None, dtype: AnyDType = None) -> Any:
    """Each element's product with those before it; integers are multiplied as 64-bit. None: of the flattened array."""
    return _running(dl.CumprodOp, x, axis, dtype)


def nancumsum(x: ArrayLike, /, axis: int | None = None, dtype: AnyDType = None) -> Any:
    """`cumsum` with NaN counting as 0."""
    x = operand(x)
    return cumsum(where(isnan(x), 0, x) if is_floating(x.dtype) else x, axis, dtype)


def nancumprod(x: ArrayLike, /, axis: int | None = None, dtype: AnyDType = None) -> Any:
    """`cumprod` with NaN counting as 1."""
    x = operand(x)
    return cumprod(where(isnan(x), 1, x) if is_floating(x.dtype) else x, axis, dtype)


@by_parts("x")
def cumulative_sum(x: ArrayLike, /, *, axis: int | None = None, dtype: AnyDType = None, include_initial: bool = False) -> Any:
    """`cumsum`, with a 0 before it if `include_initial`; `axis` may be None for vectors only."""
    return _cumulative(dl.CumsumOp, x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(x: ArrayLike, /, *, axis: int | None = None, dtype: AnyDType = None, include_initial: bool = False) -> Any:
    """`cumprod`, with a 1 before it if `include_initial`; `axis` may be None for vectors only."""
    return _cumulative(dl.CumprodOp, x, axis, dtype, 1 if include_initial else None)


def _cumulative(op: type[DlOp], x: ArrayLike, axis: int | None, dtype: Any, initial: int | None) -> Any:
    x = operand(x)
    if axis is None and x.ndim != 1:
        refuse(ShapeError(f"{op.name.removeprefix('dl.')} of {x.shape}: name the axis"))
    result = _running(op, x, axis, dtype)
    if initial is None:
        return result
    axis = axis_of("cumulative_sum", x, axis or 0)
    first = np.full([1 if a == axis else s for a, s in enumerate(x.shape)], initial, result.dtype)
    return concat([first, result], axis=axis)


@by_parts("x", "prepend", "append")
def diff(
    x: ArrayLike,
    /,
    n: int = 1,
    axis: int = -1,
    *,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Any:
    """The difference of each element along `axis` from the one before it, `n` times; bools, whether they differ."""
    x = operand(x)
    axis = axis_of("diff", x, axis)
    ends = [None if e is None else _end(e, x, axis) for e in (prepend, append)]
    if any(e is not None for e in ends):
        x = operand(concat([e for e in (ends[0], x, ends[1]) if e is not None], axis=axis))
    size = x.shape[axis]
    for _ in range(n if isinstance(size, Dim) else min(n, size)):
        later, earlier = (getitem(x, (*[slice(None)] * axis, k)) for k in (slice(1, None), slice(None, -1)))
        x = operand(not_equal(later, earlier) if x.dtype == np.bool_ else subtract(later, earlier))
    return x


def _end(value: ArrayLike, x: Operand, axis: int) -> Any:
    value = operand(value)
    return value if value.ndim else broadcast_to(value, [1 if a == axis else s for a, s in enumerate(x.shape)])


def trapezoid(y: ArrayLike, x: ArrayLike | None = None, /, dx: float = 1.0, axis: int = -1) -> Any:
    """The integral along `axis` of the lines through `y`, at the places `x` or at distances `dx`."""
    y = operand(y)
    axis = axis_of("trapezoid", y, axis)
    size = y.shape[axis]
    later, earlier = (min(1, size), size), (0, max(size - 1, 0))
    pairs = add(part(y, axis, *later), part(y, axis, *earlier))
    width: Any = dx
    if x is not None:
        x = operand(x)
        if x.ndim not in (1, y.ndim):
            refuse(ShapeError(f"trapezoid: x of shape {x.shape}; expected a vector, or as many axes as y has, {y.ndim}"))
        along = axis if x.ndim > 1 else 0
        width = subtract(part(x, along, *later), part(x, along, *earlier))
        if x.ndim == 1:
            width = reshape(width, [earlier[1] if a == axis else 1 for a in range(y.ndim)])
    return sum(multiply(multiply(width, pairs), 0.5), axis)


def convolve(x: ArrayLike, v: ArrayLike, /, mode: str = "full") -> Any:
    """The convolution of two vectors; mode full, same or valid."""
    a, b = promote(x, v)
    return _correlated(*((b, a) if b.size > a.size else (a, b)), mode, "convolve")


def correlate(x: ArrayLike, v: ArrayLike, /, mode: str = "valid") -> Any:
    """The correlation of two vectors: the sums of products with `v` moved along `x`; mode full, same or valid."""
    a, b = promote(x, v)
    if b.size > a.size:
        return flip(_correlated(b, flip(a), mode, "correlate"))
    return _correlated(a, flip(b), mode, "correlate")


def _correlated(x: Operand, v: Operand, mode: str, name: str) -> Any:
    """The convolution of a vector with one that is not longer."""
    if x.ndim != 1 or v.ndim != 1 or v.size == 0:
        refuse(ShapeError(f"{name}: shapes {x.shape} and {v.shape}; expected two vectors that are not empty"))
    k = v.size
    padding = {"valid": (0, 0), "same": ((k - 1) - (k - 1) // 2, (k - 1) // 2), "full": (k - 1, k - 1)}
    if mode not in padding:
        refuse(UnsupportedError(f"{name}: mode {mode!r}; expected one of full, same and valid"))
    low, high = padding[mode]
    padded = concat([broadcast_to(np.zeros((), x.dtype), (low,)), x, broadcast_to(np.zeros((), x.dtype), (high,))], axis=0)
    data, weights = reshape(padded, (1, -1, 1)), reshape(flip(v), (k, 1, 1))
    return ravel(apply(dl.ConvOp, data, weights, strides=(1,), dilations=(1,), groups=1))

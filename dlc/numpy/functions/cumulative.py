"""Cumulative functions: cumulative sums and products, differences, convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.errors import ArgumentError, ShapeError
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Operand,
    apply,
    convert,
    is_empty,
    is_floating,
    normalize_axis,
    operand,
    promote,
    refuse,
    with_axis_or_flattened,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.functions.comparison import isnan, not_equal
from dlc.numpy.functions.elementwise import add, multiply, subtract, where
from dlc.numpy.functions.indexing import getitem
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.reductions import sum
from dlc.numpy.functions.shape_manipulation import broadcast_to, flip, ravel, reshape, slice_axis
from dlc.shapes.dims import is_static
from dlc.shapes.traced_dims import TracedDim

__all__ = [
    "convolve", "correlate", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff", "nancumprod", "nancumsum",
    "trapezoid",
]  # fmt: skip


def associative_scan(function: Callable[[Any, Any], Any], x: Any, axis: int) -> Any:
    """Return the inclusive scan of `x` along an axis by an associative elementwise function, called ⌈log₂ n⌉ times."""
    size, shift = x.shape[axis], 1
    while shift < size:
        # Element i has the result of the last `shift` elements up to i.
        combined = function(slice_axis(x, axis, shift, size), slice_axis(x, axis, 0, size - shift))
        x = concat([slice_axis(x, axis, 0, shift), combined], axis=axis)
        shift *= 2
    return x


def _cumulative_op(op: type[DlOp], x: ArrayLike, axis: int | None, dtype: Any) -> Any:
    x, axis = with_axis_or_flattened(op.name.removeprefix("dl."), x, axis)
    if dtype is not None:
        x = convert(x, dtype)
    elif x.dtype.kind in "biu":
        x = convert(x, np.uint64 if x.dtype.kind == "u" else np.int64)
    return apply(op, x, axis=axis)


@componentwise("x")
def cumsum(x: ArrayLike, /, axis: int | None = None, dtype: AnyDType = None) -> Any:
    """Return the cumulative sum; integers are summed in 64-bit. Axis None: of the flattened array."""
    return _cumulative_op(dl.CumsumOp, x, axis, dtype)


def cumprod(x: ArrayLike, /, axis: int | None = None, dtype: AnyDType = None) -> Any:
    """Return the cumulative product; integers are multiplied in 64-bit. Axis None: of the flattened array."""
    return _cumulative_op(dl.CumprodOp, x, axis, dtype)


def nancumsum(x: ArrayLike, /, axis: int | None = None, dtype: AnyDType = None) -> Any:
    """Return the cumulative sum with NaN treated as 0."""
    x = operand(x)
    return cumsum(where(isnan(x), 0, x) if is_floating(x.dtype) else x, axis, dtype)


def nancumprod(x: ArrayLike, /, axis: int | None = None, dtype: AnyDType = None) -> Any:
    """Return the cumulative product with NaN treated as 1."""
    x = operand(x)
    return cumprod(where(isnan(x), 1, x) if is_floating(x.dtype) else x, axis, dtype)


@componentwise("x")
def cumulative_sum(x: ArrayLike, /, *, axis: int | None = None, dtype: AnyDType = None, include_initial: bool = False) -> Any:
    """Return the cumulative sum, starting with 0 if `include_initial`; `axis` may be None only for vectors."""
    return cumulative("cumulative_sum", cumsum, operand(x), axis, dtype, 0 if include_initial else None)


def cumulative_prod(x: ArrayLike, /, *, axis: int | None = None, dtype: AnyDType = None, include_initial: bool = False) -> Any:
    """Return the cumulative product, starting with 1 if `include_initial`; `axis` may be None only for vectors."""
    return cumulative("cumulative_prod", cumprod, operand(x), axis, dtype, 1 if include_initial else None)


def cumulative(name: str, function: Callable[..., Any], x: Any, axis: int | None, dtype: Any, initial: int | None) -> Any:
    """Apply `cumsum` or `cumprod` along an axis, and prepend `initial`; `axis` may be None only for vectors."""
    if axis is None and x.ndim != 1:
        refuse(ShapeError(f"{name} of shape {x.shape}: axis None; expected an axis"))
    axis = normalize_axis(name, x, axis or 0)
    result = function(x, axis, dtype)
    if initial is None:
        return result
    return concat([np.full([1 if a == axis else s for a, s in enumerate(x.shape)], initial, result.dtype), result], axis=axis)


@componentwise("x", "prepend", "append")
def diff(
    x: ArrayLike,
    /,
    n: int = 1,
    axis: int = -1,
    *,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Any:
    """Return the `n`-th difference of consecutive elements along `axis`; for bools, whether they differ."""
    x = operand(x)
    if n < 0:
        refuse(ArgumentError(f"diff: n {n}; expected at least 0"))
    axis = normalize_axis("diff", x, axis)
    boundary_arrays = [None if e is None else _boundary_array(e, x, axis) for e in (prepend, append)]
    if any(e is not None for e in boundary_arrays):
        x = operand(concat([e for e in (boundary_arrays[0], x, boundary_arrays[1]) if e is not None], axis=axis))
    size = x.shape[axis]
    for _ in range(n if isinstance(size, TracedDim) else min(n, size)):
        later, earlier = (getitem(x, (*[slice(None)] * axis, k)) for k in (slice(1, None), slice(None, -1)))
        x = operand(not_equal(later, earlier) if x.dtype == np.bool_ else subtract(later, earlier))
    return x


def _boundary_array(value: ArrayLike, x: Operand, axis: int) -> Any:
    value = operand(value)
    return value if value.ndim else broadcast_to(value, [1 if a == axis else s for a, s in enumerate(x.shape)])


@componentwise("y")
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, /, dx: float = 1.0, axis: int = -1) -> Any:
    """Return the integral along `axis` by the trapezoidal rule, for samples at `x` or spaced by `dx`."""
    y = operand(y)
    axis = normalize_axis("trapezoid", y, axis)
    size = y.shape[axis]
    later, earlier = (min(1, size), size), (0, max(size - 1, 0))
    pairs = add(slice_axis(y, axis, *later), slice_axis(y, axis, *earlier))
    width: Any = dx
    if x is not None:
        x = operand(x)
        if x.ndim not in (1, y.ndim):
            refuse(ShapeError(f"trapezoid: x of shape {x.shape}; expected a vector, or {y.ndim} axes like y"))
        x_axis = axis if x.ndim > 1 else 0
        width = subtract(slice_axis(x, x_axis, *later), slice_axis(x, x_axis, *earlier))
        if x.ndim == 1:
            width = reshape(width, [earlier[1] if a == axis else 1 for a in range(y.ndim)])
    return sum(multiply(multiply(width, pairs), 0.5), axis)


def convolve(x: ArrayLike, v: ArrayLike, /, mode: str = "full") -> Any:
    """Return the convolution of two vectors; mode full, same or valid."""
    a, b = promote(x, v)
    # A full convolution has the same terms in any order: the filter is the one of static size, or else the shorter one.
    is_full_of_static_size = mode == "full" and is_static(a.shape) != is_static(b.shape)
    is_exchanged = is_static(a.shape) if is_full_of_static_size else b.size > a.size
    return _convolve(*((b, a) if is_exchanged else (a, b)), mode, "convolve")


def correlate(x: ArrayLike, v: ArrayLike, /, mode: str = "valid") -> Any:
    """Return the cross-correlation of two vectors; mode full, same or valid."""
    a, b = promote(x, v)
    if b.size > a.size:
        return flip(_convolve(b, flip(a), mode, "correlate"))
    return _convolve(a, flip(b), mode, "correlate")


def _convolve(x: Operand, v: Operand, mode: str, name: str) -> Any:
    """Return the convolution of a vector with a filter, which is not longer unless the mode is full."""
    if x.ndim != 1 or v.ndim != 1 or v.size == 0 or is_empty(name, x, (0,), 0):
        refuse(ShapeError(f"{name}: shapes {x.shape} and {v.shape}; expected two nonempty vectors"))
    k = v.size
    padding = {"valid": (0, 0), "same": ((k - 1) - (k - 1) // 2, (k - 1) // 2), "full": (k - 1, k - 1)}
    if mode not in padding:
        refuse(ArgumentError(f"{name}: mode {mode!r}; expected one of full, same and valid"))
    low, high = padding[mode]
    padded = concat([broadcast_to(np.zeros((), x.dtype), (low,)), x, broadcast_to(np.zeros((), x.dtype), (high,))], axis=0)
    data, weights = reshape(padded, (1, -1, 1)), reshape(flip(v), (k, 1, 1))
    return ravel(apply(dl.ConvOp, data, weights, strides=(1,), dilations=(1,), groups=1))

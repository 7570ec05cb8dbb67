"""Linear algebra, as in `numpy.linalg`: on the last two axes; leading axes are many matrices.

Systems are solved by elimination with pivots, the columns one after the other, in steps that are written out when the
function is traced: for matrices of up to 64 rows. Derivatives of solutions are products with the inverse, not those of the
steps.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.errors import ShapeError, UnsupportedError
from dlc.numpy.absent import LINALG_ABSENT, raise_absent
from dlc.numpy.apply import ArrayLike, Axes, Operand, apply, axes_of, convert, in_wide_type, operand, promote_to_float, refuse
from dlc.numpy.comparing import equal, logical_and, not_equal
from dlc.numpy.creation import tril
from dlc.numpy.elementwise import abs, add, divide, log, multiply, negative, power, sign, sqrt, subtract, where
from dlc.numpy.indexing import getitem
from dlc.numpy.joining import concat
from dlc.numpy.linear import cross, matmul, outer, tensordot, vecdot
from dlc.numpy.linear import trace as _trace
from dlc.numpy.reductions import any, argmax, max, min, prod, sum
from dlc.numpy.rules import with_tangent
from dlc.numpy.shaping import broadcast_shapes, broadcast_to, expand_dims, matrix_transpose, moveaxis, reshape
from dlc.numpy.shaping import diagonal as _diagonal

__all__ = [
    "cholesky", "cross", "det", "diagonal", "inv", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "multi_dot",
    "norm", "outer", "slogdet", "solve", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip

_MOST_ROWS = 64


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Any:
    """The elements on a diagonal of each matrix."""
    return _diagonal(x, offset, -2, -1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of a diagonal of each matrix."""
    return _trace(x, offset, -2, -1, dtype)


def multi_dot(arrays: Sequence[ArrayLike], /) -> Any:
    """The product of several matrices, from left to right; the first and the last may be vectors."""
    first, *rest = arrays
    for x in rest:
        first = matmul(first, x)
    return first


def matrix_power(x: ArrayLike, n: int, /) -> Any:
    """The product of n equal matrices; of their inverses if n is negative."""
    x = _square("matrix_power", x, most=None if n >= 0 else _MOST_ROWS)
    if n < 0:
        x, n = operand(inv(x)), -n
    if n == 0:
        return broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)
    result: Any = None
    while n:
        result = (x if result is None else matmul(result, x)) if n % 2 else result
        n //= 2
        x = matmul(x, x) if n else x
    return result


def vector_norm(x: ArrayLike, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Any:
    """(Σ |x|^ord)^(1/ord) over `axis`; the largest for inf, the smallest for -inf, the number of elements not 0 for 0."""
    (x,) = promote_to_float(x)
    axes = axes_of("vector_norm", x, axis)
    if ord == math.inf:
        return max(abs(x), axes, keepdims=keepdims)
    if ord == -math.inf:
        return min(abs(x), axes, keepdims=keepdims)
    if ord == 0:
        return convert(sum(not_equal(x, 0), axes, keepdims=keepdims), x.dtype)
    if ord == 1:
        return sum(abs(x), axes, keepdims=keepdims)
    if ord == 2:
        return apply(dl.ReduceL2Op, x, axes=axes, keepdims=keepdims)
    return power(sum(power(abs(x), float(ord)), axes, keepdims=keepdims), 1 / ord)


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: float | str = "fro") -> Any:
    """Of each matrix: √(Σ x²) for "fro", the largest Σ |x| of a column for 1, the smallest for -1; of a row for inf, -inf."""
    (x,) = promote_to_float(x)
    if x.ndim < 2:
        refuse(ShapeError(f"matrix_norm: an array of shape {x.shape} is no matrix"))
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        refuse(UnsupportedError(f'matrix_norm: ord {ord!r}, which takes singular values; expected "fro", 1, -1, inf or -inf'))
    along, across = (-2, -1) if ord in (1, -1) else (-1, -2)
    sums = sum(abs(x), along, keepdims=True)
    result = (max if operator.gt(float(ord), 0) else min)(sums, across, keepdims=True)
    return result if keepdims else reshape(result, result.shape[:-2])


def norm(x: ArrayLike, /, ord: float | str | None = None, axis: Axes = None, keepdims: bool = False) -> Any:
    """`vector_norm` over one axis, `matrix_norm` over two; √(Σ x²) over any number of them without `ord`."""
    (x,) = promote_to_float(x)
    axes = axes_of("norm", x, axis)
    if ord is None or (len(axes) == 1 and not isinstance(ord, str)):
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)  # pyright: ignore[reportArgumentType]
    if len(axes) != 2:
        refuse(ShapeError(f"norm: ord {ord!r} over {len(axes)} axes of {x.shape}; name one axis, or two for a matrix"))
    result = matrix_norm(moveaxis(x, axes, (-2, -1)), ord=ord)
    return reshape(result, [1 if a in axes else s for a, s in enumerate(x.shape)]) if keepdims else result


def solve(a: ArrayLike, b: ArrayLike, /) -> Any:
    """The x for which a @ x == b; `b` is a vector, or holds columns. Of a singular matrix infinities and NaN."""
    a, b = promote_to_float(a, b)
    a = _square("solve", a)
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    if columns.shape[-2] != a.shape[-1]:
        refuse(ShapeError(f"solve: {a.shape[-1]} unknowns and a right side of shape {b.shape}"))
    batch = broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    result = _solved(*(broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, columns)))
    return reshape(result, result.shape[:-1]) if b.ndim == 1 else result


@in_wide_type
@with_tangent(lambda x, operands, tangents: matmul(inv(operands[0]), subtract(tangents[1], matmul(tangents[0], x))))
def _solved(a: Operand, columns: Operand) -> Any:
    """Its change is that of the right side, less what the change of `a` makes of the solution, solved for."""
    return _eliminated(a, columns)[0]


def inv(x: ArrayLike, /) -> Any:
    """The inverse of each matrix; of a singular one infinities and NaN."""
    (x,) = promote_to_float(x)
    return _inverse(_square("inv", x))


@in_wide_type
@with_tangent(lambda y, _, tangents: negative(matmul(matmul(y, tangents[0]), y)))
def _inverse(x: Operand) -> Any:
    return _eliminated(x, broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape))[0]


def det(x: ArrayLike, /) -> Any:
    """The determinant of each matrix."""
    (x,) = promote_to_float(x)
    x = _square("det", x)
    _, pivots, flips = _eliminated(_wide(x), None)
    return convert(multiply(prod(pivots, -1), flips), x.dtype)


def slogdet(x: ArrayLike, /) -> tuple[Any, Any]:
    """The sign of the determinant of each matrix, and the logarithm of its size."""
    (x,) = promote_to_float(x)
    x = _square("slogdet", x)
    _, pivots, flips = _eliminated(_wide(x), None)
    return convert(multiply(prod(sign(pivots), -1), flips), x.dtype), _log_size(x)


@in_wide_type
@with_tangent(lambda _, operands, tangents: trace(matmul(inv(operands[0]), tangents[0])))
def _log_size(x: Operand) -> Any:
    """The logarithm of the size of the determinant."""
    return sum(log(abs(_eliminated(x, None)[1])), -1)


def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Any:
    """The lower triangular L with L @ L.mT == x (its transpose if `upper`) of symmetric, positive matrices; NaN of others."""
    (x,) = promote_to_float(x)
    x = _square("cholesky", x)
    lower = _lower(x)
    return matrix_transpose(lower) if upper else lower


def _lower_tangent(lower: Operand, _: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    """L·Φ(L⁻¹·dx·L⁻ᵀ), Φ the lower triangle with half the diagonal.

    Source: Murray, "Differentiation of the Cholesky decomposition" (arXiv:1602.07527).
    The upper triangle of x is not read: it changes as the lower one does.
    """
    (dx,), inverse = tangents, inv(lower)
    dx = add(tril(dx), matrix_transpose(tril(dx, k=-1)))
    half = np.tri(lower.shape[-1]) - np.eye(lower.shape[-1]) / 2
    inner = matmul(matmul(inverse, dx), matrix_transpose(inverse))
    return matmul(lower, multiply(inner, convert(half, lower.dtype)))


@in_wide_type
@with_tangent(_lower_tangent)
def _lower(x: Operand) -> Any:
    size = x.shape[-1]
    rest, result = x, np.zeros(x.shape, x.dtype)
    for k in range(size):
        # What is left of column k from the diagonal down, divided by the root of its first element.
        here, below = np.arange(size) == k, np.arange(size) >= k
        column = where(below, _picked(rest, here, -1), 0)
        column = divide(column, sqrt(expand_dims(_picked(column, here, -1), -1)))
        result = where(here, expand_dims(column, -1), result)
        rest = subtract(rest, multiply(expand_dims(column, -1), expand_dims(column, -2)))
    return result


# Note [Steps of one text]
#
# The steps of an elimination differ in the column that they work on. It is named by a mask, which is an array beside the
# program and no part of a kernel's text: all steps run the same few kernels, compiled once.


def _eliminated(a: Operand, b: Operand | None) -> tuple[Any, Any, Any]:
    """The solution for the columns `b`, the pivots of `a`, and -1 to the power of the number of exchanged rows."""
    size, dtype = a.shape[-1], a.dtype
    m = a if b is None else concat([a, b], axis=-1)
    width, rows = m.shape[-1], np.arange(size)
    pivots: Any = np.ones(a.shape[:-1], dtype)
    flips: Any = np.ones(a.shape[:-2], dtype)
    for k in range(size):
        here, left, in_column = rows == k, rows >= k, np.arange(width) == k
        column = _picked(m, in_column, -1)
        # The largest element that is left is the pivot: its row changes places with row k. NaN is one too.
        chosen = equal(expand_dims(argmax(where(left, abs(column), -1), -1), -1), rows)
        pivot_row, own_row = _picked(m, expand_dims(chosen, -1), -2), _picked(m, here[:, None], -2)
        pivot = _picked(column, chosen, -1)
        own = _picked(column, here, -1)
        column = where(here, expand_dims(pivot, -1), where(chosen, expand_dims(own, -1), column))
        m = where(here[:, None], expand_dims(pivot_row, -2), where(expand_dims(chosen, -1), expand_dims(own_row, -2), m))
        flips = where(any(logical_and(chosen, here), -1), flips, negative(flips))
        pivots = where(here, expand_dims(pivot, -1), pivots)
        factors = where(here, 0, divide(column, expand_dims(where(pivot, pivot, 1), -1)))
        m = subtract(m, multiply(expand_dims(factors, -1), expand_dims(pivot_row, -2)))
    solution = None if b is None else divide(getitem(m, (..., slice(size, None))), expand_dims(pivots, -1))
    return solution, pivots, flips


def _picked(x: Any, mask: Any, axis: int) -> Any:
    """The element along `axis` where the mask is true. Others may be infinite: they are left out, not multiplied by 0."""
    return sum(where(mask, x, 0), axis)


def _wide(x: Operand) -> Operand:
    return convert(x, np.float32) if x.dtype.itemsize == 2 else x


def _square(name: str, x: ArrayLike, most: int | None = _MOST_ROWS) -> Operand:
    """`x`, of square matrices with at most so many rows."""
    x = operand(x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        refuse(ShapeError(f"{name}: an array of shape {x.shape}; expected square matrices along the last two axes"))
    if most is not None and x.shape[-1] > most:
        refuse(UnsupportedError(f"{name}: matrices of {x.shape[-1]} rows; at most {most}, as the steps are written out"))
    return x


def __getattr__(name: str) -> Any:
    raise_absent("dlc.numpy.linalg", name, LINALG_ABSENT)

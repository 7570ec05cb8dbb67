"""Linear algebra, as in `numpy.linalg`: on the last two axes; leading axes are many matrices.

What NumPy raises a LinAlgError for is seen in the result: solutions with a singular matrix are infinities and NaN, as is the
Cholesky factor of a matrix that is not positive from the row on that has no root; an iteration that does not converge, which
takes NaN or infinity, gives NaN. Eigenvectors and singular vectors may have other signs than NumPy's.

Derivatives are formulas of the results, not those of the steps: of `det` for singular matrices too, of `eigh` and `svd`
without the part in which vectors of equal values turn into each other, which is not defined; the columns of Q, U and V that
`full_matrices` and `mode="complete"` add have none.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dlc.dialects import dl
from dlc.dims import UndecidableError, is_static
from dlc.errors import ShapeError, UnsupportedError
from dlc.misuse import explain_misuse
from dlc.numpy import factors
from dlc.numpy.absent import LINALG_ABSENT, raise_absent
from dlc.numpy.apply import AnyDType, ArrayLike, Axes, Operand, apply, axes_of, convert, operand, promote_to_float, refuse
from dlc.numpy.functions.comparing import greater, not_equal
from dlc.numpy.functions.creation import tril, triu
from dlc.numpy.functions.elementwise import abs, add, divide, multiply, power, subtract
from dlc.numpy.functions.indexing import getitem
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.linear import cross, matmul, outer, tensordot, vecdot
from dlc.numpy.functions.linear import trace as _trace
from dlc.numpy.functions.reductions import any, max, min, sum
from dlc.numpy.functions.shaping import broadcast_shapes, broadcast_to, expand_dims, matrix_transpose, moveaxis, reshape
from dlc.numpy.functions.shaping import diagonal as _diagonal

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "lstsq", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


class EighResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    Q: Any
    R: Any


class SVDResult(NamedTuple):
    U: Any
    S: Any
    Vh: Any


class SlogdetResult(NamedTuple):
    sign: Any
    logabsdet: Any


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Any:
    """The elements on a diagonal of each matrix."""
    return _diagonal(x, offset, -2, -1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: AnyDType = None) -> Any:
    """The sum of a diagonal of each matrix."""
    return _trace(x, offset, -2, -1, dtype)


def multi_dot(arrays: Sequence[ArrayLike], /) -> Any:
    """The product of several matrices, from left to right; the first and the last may be vectors."""
    if not len(arrays):
        refuse(ShapeError("multi_dot: no arrays; give at least one"))
    first, *rest = arrays
    for x in rest:
        first = matmul(first, x)
    return first


def matrix_power(x: ArrayLike, n: int, /) -> Any:
    """The product of n equal matrices; of their inverses if n is negative."""
    x, n = _square("matrix_power", x), operator.index(n)
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
    """Of each matrix: √(Σ x²) for "fro"; the largest Σ |x| of a column for 1, of a row for inf, the smallest for -1, -inf.

    The sum of the singular values for "nuc", the largest of them for 2, the smallest for -2.
    """
    x = _matrix("matrix_norm", x)
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord not in (1, -1, 2, -2, math.inf, -math.inf, "nuc"):
        refuse(UnsupportedError(f'matrix_norm: ord {ord!r}; expected "fro", "nuc", 1, -1, 2, -2, inf or -inf'))
    extreme = max if ord == "nuc" or operator.gt(float(ord), 0) else min
    if ord in (2, -2, "nuc"):
        values = svdvals(x)
        result = sum(values, -1) if ord == "nuc" else extreme(values, -1)
    else:
        along, across = (-2, -1) if ord in (1, -1) else (-1, -1)
        result = extreme(sum(abs(x), along), across)
    return expand_dims(result, (-2, -1)) if keepdims else result


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


def cond(x: ArrayLike, /, p: float | str | None = None) -> Any:
    """The norm of each matrix times that of its inverse; without `p`, and for 2, the largest singular value by the smallest."""
    x = _matrix("cond", x)
    if p is None or p in (2, -2):
        values = svdvals(x)
        largest, smallest = values[..., 0], values[..., -1]
        return divide(smallest, largest) if p == -2 else divide(largest, smallest)
    return multiply(matrix_norm(x, ord=p), matrix_norm(inv(x), ord=p))


def solve(a: ArrayLike, b: ArrayLike, /) -> Any:
    """The x for which a @ x == b; `b` is a vector, or holds columns. Of a singular matrix infinities and NaN."""
    a, b = promote_to_float(a, b)
    a = _square("solve", a)
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    if columns.ndim < 2 or columns.shape[-2] != a.shape[-1]:
        refuse(ShapeError(f"solve: {a.shape[-1]} unknowns and a right side of shape {b.shape}"))
    batch = broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    result = factors.solved(*(broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, columns)))
    return reshape(result, result.shape[:-1]) if b.ndim == 1 else result


def inv(x: ArrayLike, /) -> Any:
    """The inverse of each matrix; of a singular one infinities and NaN."""
    return factors.inverse(_square("inv", x))


def pinv(x: ArrayLike, /, rcond: ArrayLike | None = None, *, rtol: ArrayLike | None = None) -> Any:
    """The inverse of each matrix so far as it has one: of its singular values above `rtol` (or `rcond`) times the largest.

    That is the precision of the dtype times the larger size unless told otherwise.
    """
    x = _matrix("pinv", x)
    return factors.pseudo_inverse(x, _least(x, rcond if rtol is None else rtol))


def lstsq(a: ArrayLike, b: ArrayLike, /, rcond: ArrayLike | None = None) -> tuple[Any, Any, Any, Any]:
    """The shortest x for which a @ x is nearest to b; the sums of squares of what is left, the rank and singular values of `a`.

    `b` is a vector, or holds columns. Singular values of at most `rcond` times the largest count as 0. The sums are there where
    `a` has more rows than columns, whatever its rank.
    """
    a, b = promote_to_float(a, b)
    a = _matrix("lstsq", a)
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        refuse(ShapeError(f"lstsq: a matrix of shape {a.shape} and a right side of shape {b.shape}"))
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    least = _least(a, rcond)
    x = factors.least_squares(a, columns, least)
    rest = subtract(columns, matmul(a, x))
    left = sum(multiply(rest, rest), 0) if a.shape[0] > a.shape[1] else np.zeros(0, a.dtype)
    values = svdvals(a)
    return reshape(x, x.shape[:1]) if b.ndim == 1 else x, left, convert(_rank(values, least), np.int32), values


def _least(x: Operand, rtol: ArrayLike | None) -> Operand:
    """Which part of the largest singular value is none any more, for each matrix."""
    part = np.finfo(x.dtype).eps * np.max(x.shape[-2:], initial=1) if rtol is None else rtol
    return operand(broadcast_to(convert(part, x.dtype), x.shape[:-2]))


def matrix_rank(x: ArrayLike, /, tol: ArrayLike | None = None, *, rtol: ArrayLike | None = None) -> Any:
    """The number of singular values above `tol`, or above `rtol` times the largest.

    That is the precision of the dtype times the larger size unless told otherwise.
    """
    (x,) = promote_to_float(x)
    if x.ndim < 2:
        return convert(any(not_equal(x, 0)), np.int64)
    values = svdvals(x)
    if tol is not None:
        return sum(greater(values, expand_dims(convert(tol, x.dtype), -1)), -1)
    return _rank(values, _least(x, rtol))


def _rank(values: Any, least: Operand) -> Any:
    return sum(greater(values, multiply(expand_dims(least, -1), values[..., :1])), -1)


def det(x: ArrayLike, /) -> Any:
    """The determinant of each matrix."""
    return factors.determinant(_square("det", x))


def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """The sign of the determinant of each matrix, and the logarithm of its size."""
    x = _square("slogdet", x)
    return SlogdetResult(factors.determinant_sign(x), factors.determinant_log_size(x))


def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Any:
    """The lower triangular L with L @ L.mT == x (its transpose if `upper`) of symmetric, positive matrices; NaN of others.

    Of `x` the lower triangle is read, or the upper one.
    """
    x = _square("cholesky", x)
    return factors.upper_root(x) if upper else matrix_transpose(factors.upper_root(operand(matrix_transpose(x))))


def qr(x: ArrayLike, /, *, mode: str = "reduced") -> Any:
    """(Q, R): x == Q @ R, Q with orthonormal columns, R upper triangular; "complete" with all columns of Q, "r": R alone."""
    x = _matrix("qr", x)
    rows, count = x.shape[-2:]
    if mode == "r":
        return factors.triangle_of(x, np.minimum(rows, count))
    if mode not in ("reduced", "complete"):
        refuse(UnsupportedError(f'qr: mode {mode!r}; expected "reduced", "complete" or "r"'))
    if rows >= count:
        return QRResult(*(factors.all_columns if mode == "complete" and rows > count else factors.columns)(x))
    q, r = factors.columns(getitem(x, (..., slice(rows))))
    return QRResult(q, concat([r, matmul(matrix_transpose(q), getitem(x, (..., slice(rows, None))))], axis=-1))


def eigh(x: ArrayLike, /, UPLO: str = "L") -> EighResult:
    """The eigenvalues of symmetric matrices, ascending, and the eigenvectors as columns; one triangle, "L" or "U", is read."""
    return EighResult(*factors.eigenvectors(_symmetric("eigh", x, UPLO)))


def eigvalsh(x: ArrayLike, /, UPLO: str = "L") -> Any:
    """The eigenvalues of symmetric matrices, ascending; one triangle, "L" or "U", is read."""
    return factors.eigenvalues(_symmetric("eigvalsh", x, UPLO))


def svd(x: ArrayLike, /, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """(U, S, Vh): x == U * S @ Vh, S the singular values, descending; with `full_matrices` U and Vh have all their columns."""
    x = _matrix("svd", x)
    if not compute_uv:
        return factors.singular_values(x)
    more = full_matrices and x.shape[-2] != x.shape[-1]
    return SVDResult(*(factors.all_singular_vectors if more else factors.singular_vectors)(x))


def svdvals(x: ArrayLike, /) -> Any:
    """The singular values of each matrix, descending."""
    return factors.singular_values(_matrix("svdvals", x))


def _matrix(name: str, x: ArrayLike) -> Operand:
    (x,) = promote_to_float(x)
    if x.ndim < 2:
        refuse(ShapeError(f"{name}: an array of shape {x.shape} is no matrix"))
    if not is_static(x.shape[-2:]):
        refuse(UndecidableError(f"{name}: matrices of {x.shape[-2]} × {x.shape[-1]}, sizes that must be known"))
    return x


def _square(name: str, x: ArrayLike) -> Operand:
    x = _matrix(name, x)
    if x.shape[-1] != x.shape[-2]:
        refuse(ShapeError(f"{name}: an array of shape {x.shape}; expected square matrices along the last two axes"))
    return x


def _symmetric(name: str, x: ArrayLike, triangle: str) -> Operand:
    """Symmetric matrices with this triangle of `x`."""
    x = _square(name, x)
    if triangle not in ("L", "U"):
        refuse(UnsupportedError(f'{name}: UPLO {triangle!r}; expected "L" or "U"'))
    whole, strict = (tril(x), tril(x, k=-1)) if triangle == "L" else (triu(x), triu(x, k=1))
    return operand(add(whole, matrix_transpose(strict)))


def __getattr__(name: str) -> Any:
    raise_absent("dlc.numpy.linalg", name, LINALG_ABSENT)


explain_misuse(globals())

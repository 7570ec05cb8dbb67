"""Linear algebra: as in `numpy.linalg`, of real and complex matrices in the last two axes; leading axes are batch axes.

Where NumPy raises LinAlgError, the result shows the failure. Solving with a singular matrix gives infinities and NaN. The
Cholesky factor of a matrix that is not positive definite is NaN from the failing row on. An iteration that does not converge,
as for NaN or infinity in the input, gives NaN. Signs of eigenvectors and singular vectors, and phases of complex ones, may
differ from NumPy's.

Derivatives are closed formulas in terms of the results. `det` is differentiable for singular matrices. The derivatives of
`eig`, `eigh` and `svd` omit the undefined rotation of vectors of equal values into each other, and those of `eigh` and `svd`
the undefined phases of complex vectors. The columns of Q, U and V that `full_matrices` and `mode="complete"` add have no
derivative.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from dlc.argument_validation.validate import validate_arguments
from dlc.dialects import dl
from dlc.errors import ArgumentError, ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import from_parts, is_complex
from dlc.numpy import decompositions
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Axes,
    Operand,
    apply,
    convert,
    in_float32_or_wider,
    normalize_axes,
    operand,
    refuse,
)
from dlc.numpy.calling_convention import numpy_converters
from dlc.numpy.decompositions import adjoint, divide, equal, matmul, multiply, real_dtype, subtract
from dlc.numpy.functions import matrix_products
from dlc.numpy.functions.comparison import greater, not_equal
from dlc.numpy.functions.complex_numbers import ComplexArrayLike, abs, astype, imag, promote_to_inexact, real, with_complex_rule
from dlc.numpy.functions.creation import eye, tril, triu
from dlc.numpy.functions.elementwise import add, power, where
from dlc.numpy.functions.indexing import getitem
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.reductions import any, max, min, sum
from dlc.numpy.functions.shape_manipulation import (
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    matrix_transpose,
    moveaxis,
    reshape,
)
from dlc.numpy.functions.shape_manipulation import diagonal as _diagonal
from dlc.numpy.unsupported_names import raise_unsupported_name

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet",
    "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]  # fmt: skip


tensordot, vecdot = map(with_complex_rule, (matrix_products.tensordot, matrix_products.vecdot))
_cross, _outer = map(with_complex_rule, (matrix_products.cross, matrix_products.outer))


class EigResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


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


def diagonal(x: ComplexArrayLike, /, *, offset: int = 0) -> Any:
    """Return a diagonal of each matrix."""
    return _diagonal(cast(ArrayLike, x), offset, -2, -1)


def trace(x: ComplexArrayLike, /, *, offset: int = 0, dtype: AnyDType = None) -> Any:
    """Return the sum along a diagonal of each matrix."""
    return matrix_products.trace(cast(ArrayLike, x), offset, -2, -1, dtype)


def cross(x1: ComplexArrayLike, x2: ComplexArrayLike, /, *, axis: int = -1) -> Any:
    """Return the cross product of 3-vectors along `axis`; the other axes broadcast."""
    return _cross(x1, x2, axis=axis)


def outer(x1: ComplexArrayLike, x2: ComplexArrayLike, /) -> Any:
    """Return the matrix of all products of an element of one vector and an element of the other."""
    shapes = [x.shape for x in promote_to_inexact(x1, x2)]
    if [len(shape) for shape in shapes] != [1, 1]:
        refuse(ShapeError(f"outer: arrays of shapes {shapes[0]} and {shapes[1]}; expected vectors"))
    return _outer(x1, x2)


def multi_dot(arrays: Sequence[ComplexArrayLike], /) -> Any:
    """Return the product of several matrices, evaluated from left to right; the first and the last may be vectors."""
    if not len(arrays):
        refuse(ShapeError("multi_dot: no arrays; expected at least one"))
    product, *remaining_arrays = arrays
    for x in remaining_arrays:
        product = matmul(product, x)
    return product


def matrix_power(x: ComplexArrayLike, n: int, /) -> Any:
    """Return the n-th power of each matrix; for negative n, of its inverse."""
    matrices, n = _square("matrix_power", x), operator.index(n)
    if n < 0:
        x, n = cast(Operand, inv(matrices)), -n
    else:
        # Powers of integers are integers.
        x = matrices if is_complex(x) else operand(cast(ArrayLike, x))
    if n == 0:
        return broadcast_to(astype(eye(x.shape[-1], dtype=real_dtype(x)), x.dtype), x.shape)
    result: Any = None
    while n:
        result = (x if result is None else matmul(result, x)) if n % 2 else result
        n //= 2
        x = matmul(x, x) if n else x
    return result


def vector_norm(x: ComplexArrayLike, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Any:
    """Return (Σ |x|^ord)^(1/ord) over `axis`; max |x| for inf, min |x| for -inf, the number of nonzero elements for 0."""
    (x,) = promote_to_inexact(x)
    x = cast(Operand, abs(x) if is_complex(x) else x)
    axes = normalize_axes("vector_norm", x, axis)
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

    @in_float32_or_wider
    def of_powers(x: Operand) -> Any:
        return power(sum(power(abs(x), float(ord)), axes, keepdims=keepdims), 1 / ord)

    return of_powers(x)


def matrix_norm(x: ComplexArrayLike, /, *, keepdims: bool = False, ord: float | str = "fro") -> Any:
    """Return the norm of each matrix: √(Σ x²) for "fro"; maximum column or row sum of |x| for 1 or inf, minimum for -1 or -inf.

    "nuc" is the sum of the singular values, 2 the largest of them, -2 the smallest.
    """
    x = _matrix("matrix_norm", x)
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord not in (1, -1, 2, -2, math.inf, -math.inf, "nuc"):
        refuse(UnsupportedError(f'matrix_norm: ord {ord!r}; expected "fro", "nuc", 1, -1, 2, -2, inf or -inf'))
    extreme = max if ord == "nuc" or operator.gt(float(ord), 0) else min
    if ord in (2, -2, "nuc"):
        values = svdvals(x)
        result = min(values, -1) if ord == -2 else sum(values, -1) if ord == "nuc" else max(values, -1, initial=0.0)
    else:
        sum_axis, extreme_axis = (-2, -1) if ord in (1, -1) else (-1, -1)
        result = extreme(sum(abs(x), sum_axis), extreme_axis)
    return expand_dims(result, (-2, -1)) if keepdims else result


def norm(x: ComplexArrayLike, /, ord: float | str | None = None, axis: Axes = None, keepdims: bool = False) -> Any:
    """Return `vector_norm` over one axis or `matrix_norm` over two; without `ord`, √(Σ x²) over any number of axes."""
    (array,) = promote_to_inexact(x)
    axes = normalize_axes("norm", array, axis)
    if ord is None or (len(axes) == 1 and not isinstance(ord, str)):
        return vector_norm(array, axis=axes, keepdims=keepdims, ord=2 if ord is None else cast(float, ord))
    if len(axes) != 2:
        refuse(
            ShapeError(f"norm: ord {ord!r} over {len(axes)} axes of {array.shape}; expected one axis, or two for a matrix norm")
        )
    result = matrix_norm(moveaxis(array, axes, (-2, -1)), ord=ord)
    return reshape(result, [1 if a in axes else s for a, s in enumerate(array.shape)]) if keepdims else result


def cond(x: ComplexArrayLike, /, p: float | str | None = None) -> Any:
    """Return the condition number of each matrix in the norm `p`; by default 2: the ratio of the extreme singular values.

    It is infinite for a matrix of zeros.
    """
    x = _matrix("cond", x)
    if p is None or p in (2, -2):
        values = svdvals(x)
        largest, smallest = values[..., 0], values[..., -1]
        ratio = divide(smallest, largest) if p == -2 else divide(largest, smallest)
        return where(equal(largest, 0), math.inf, ratio)
    return multiply(matrix_norm(x, ord=p), matrix_norm(inv(x), ord=p))


def solve(a: ComplexArrayLike, b: ComplexArrayLike, /) -> Any:
    """Solve a @ x == b, where `b` is a vector or has one column per system. A singular `a` gives infinities and NaN."""
    a, b = promote_to_inexact(a, b)
    a = _square("solve", a)
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    if columns.ndim < 2 or columns.shape[-2] != a.shape[-1]:
        refuse(ShapeError(f"solve: a has {a.shape[-1]} columns, b has shape {b.shape}; expected as many rows in b"))
    batch = broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    result = decompositions.solve(*(broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, columns)))
    return reshape(result, result.shape[:-1]) if b.ndim == 1 else result


def inv(x: ComplexArrayLike, /) -> Any:
    """Return the inverse of each matrix; a singular one gives infinities and NaN."""
    return decompositions.inverse(_square("inv", x))


def tensorsolve(a: ComplexArrayLike, b: ComplexArrayLike, /, axes: Axes = None) -> Any:
    """Solve tensordot(a, x, x.ndim) == b. The last axes of `a` are those of `x`; `axes` are moved to the end before."""
    tensor, right_side = promote_to_inexact(a, b)
    if axes is not None:
        moved = normalize_axes("tensorsolve", tensor, axes)
        tensor = moveaxis(tensor, moved, tuple(range(-len(moved), 0)))
    shape, equations = tensor.shape[right_side.ndim :], math.prod(right_side.shape)
    if math.prod(shape) != equations:
        shapes = f"a of shape {tensor.shape}, b of shape {right_side.shape}"
        refuse(ShapeError(f"tensorsolve: {shapes}; expected as many unknowns as equations"))
    return reshape(solve(reshape(tensor, (equations, math.prod(shape))), reshape(right_side, (-1,))), shape)


def tensorinv(a: ComplexArrayLike, /, ind: int = 2) -> Any:
    """Return the inverse of the map from the last axes of `a` to the first `ind` axes: tensordot(tensorinv(a), a, ind) == I."""
    (a,) = promote_to_inexact(a)
    rows, columns = a.shape[:ind], a.shape[ind:]
    if ind < 1 or math.prod(rows) != math.prod(columns):
        refuse(ShapeError(f"tensorinv: ind {ind} for shape {a.shape}; expected equal products of the sizes before and after"))
    return reshape(inv(reshape(a, (math.prod(rows), math.prod(columns)))), (*columns, *rows))


def pinv(
    x: ComplexArrayLike, /, rcond: ArrayLike | None = None, hermitian: bool = False, *, rtol: ArrayLike | None = None
) -> Any:
    """Return the pseudo-inverse of each matrix, from the singular values above `rtol` (or `rcond`) times the largest.

    The default is the machine epsilon of the dtype times the larger dimension. `hermitian`: the matrices are Hermitian, and
    only their lower triangles are read.
    """
    if rcond is not None and rtol is not None:
        refuse(ArgumentError("pinv: rcond and rtol; pass one of them"))
    x = _hermitian("pinv", x, "L") if hermitian else _matrix("pinv", x)
    return decompositions.pseudo_inverse(x, _relative_threshold(x, rcond if rtol is None else rtol))


def lstsq(a: ComplexArrayLike, b: ComplexArrayLike, /, rcond: ArrayLike | None = None) -> tuple[Any, Any, Any, Any]:
    """Return the minimum-norm least-squares solution of a @ x == b, the residual sums of squares, rank and singular values.

    `b` is a vector or has columns. Singular values of at most `rcond` times the largest count as 0. Residuals are returned if
    `a` has more rows than columns, whatever its rank.
    """
    a, b = promote_to_inexact(a, b)
    a = _matrix("lstsq", a)
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        refuse(ShapeError(f"lstsq: a of shape {a.shape}, b of shape {b.shape}; expected a matrix, and as many rows in b"))
    columns = expand_dims(b, -1) if b.ndim == 1 else b
    threshold = _relative_threshold(a, rcond)
    x = decompositions.least_squares(a, columns, threshold)
    residual = subtract(columns, matmul(a, x))
    squares = sum(add(*(multiply(part, part) for part in (real(residual), imag(residual)))), 0)
    residuals = squares if a.shape[0] > a.shape[1] else np.zeros(0, real_dtype(a))
    values = svdvals(a)
    return reshape(x, x.shape[:1]) if b.ndim == 1 else x, residuals, convert(_rank(values, threshold), np.int32), values


def _relative_threshold(x: Operand, rtol: ArrayLike | None) -> Operand:
    """Return the relative threshold below which singular values count as 0, for each matrix."""
    rows, columns = x.shape[-2:]
    relative = float(np.finfo(x.dtype).eps) * (rows if rows > columns else columns) if rtol is None else rtol
    return operand(broadcast_to(convert(relative, real_dtype(x)), x.shape[:-2]))


def matrix_rank(
    x: ComplexArrayLike, /, tol: ArrayLike | None = None, hermitian: bool = False, *, rtol: ArrayLike | None = None
) -> Any:
    """Return the number of singular values above `tol`, or above `rtol` times the largest.

    The default is the machine epsilon of the dtype times the larger dimension. `hermitian`: the matrices are Hermitian, and
    only their lower triangles are read.
    """
    (x,) = promote_to_inexact(x)
    if tol is not None and rtol is not None:
        refuse(ArgumentError("matrix_rank: tol and rtol; pass one of them"))
    if x.ndim < 2:
        return convert(any(not_equal(abs(x), 0)), np.int64)
    values = svd(x, compute_uv=False, hermitian=hermitian)
    if tol is not None:
        return sum(greater(values, expand_dims(convert(tol, values.dtype), -1)), -1)
    return _rank(values, _relative_threshold(x, rtol))


def _rank(values: Any, threshold: Operand) -> Any:
    return sum(greater(values, multiply(expand_dims(threshold, -1), values[..., :1])), -1)


def det(x: ComplexArrayLike, /) -> Any:
    """Return the determinant of each matrix."""
    return decompositions.determinant(_square("det", x))


def slogdet(x: ComplexArrayLike, /) -> SlogdetResult:
    """Return the sign of the determinant of each matrix and the logarithm of its absolute value."""
    x = _square("slogdet", x)
    return SlogdetResult(decompositions.determinant_sign(x), decompositions.log_abs_determinant(x))


def cholesky(x: ComplexArrayLike, /, *, upper: bool = False) -> Any:
    """Return the lower triangular L with L @ Lᴴ == x, or the upper factor if `upper`; NaN if x is not positive definite.

    Only the lower triangle of `x` is read, or the upper one if `upper`, and the real part of the diagonal.
    """
    x = _square("cholesky", x)
    return decompositions.upper_cholesky(x) if upper else adjoint(decompositions.upper_cholesky(adjoint(x)))


def qr(x: ComplexArrayLike, /, *, mode: str = "reduced") -> Any:
    """Return (Q, R) with x == Q @ R: Q has orthonormal columns, R is upper triangular; "complete": Q is square, "r": only R."""
    x = _matrix("qr", x)
    rows, count = x.shape[-2:]
    if mode == "r":
        return decompositions.r_factor(x, rows if rows < count else count)
    if mode not in ("reduced", "complete"):
        refuse(UnsupportedError(f'qr: mode {mode!r}; expected "reduced", "complete" or "r"'))
    if rows >= count:
        return QRResult(*(decompositions.complete_qr if mode == "complete" and rows > count else decompositions.reduced_qr)(x))
    q, r = decompositions.reduced_qr(getitem(x, (..., slice(rows))))
    return QRResult(q, concat([r, matmul(adjoint(q), getitem(x, (..., slice(rows, None))))], axis=-1))


def eigh(x: ComplexArrayLike, /, UPLO: str = "L") -> EighResult:
    """Return the ascending eigenvalues of Hermitian matrices, and eigenvectors as columns; reads the triangle `UPLO`."""
    return EighResult(*decompositions.symmetric_eigen(_hermitian("eigh", x, UPLO)))


def eigvalsh(x: ComplexArrayLike, /, UPLO: str = "L") -> Any:
    """Return the eigenvalues of Hermitian matrices in ascending order; reads the triangle `UPLO`, "L" or "U"."""
    return decompositions.symmetric_eigenvalues(_hermitian("eigvalsh", x, UPLO))


def eig(x: ComplexArrayLike, /) -> EigResult:
    """Return the eigenvalues of square matrices, and eigenvectors of length 1 as columns, both complex.

    Eigenvalues ascend by their real, then by their imaginary parts. The element of an eigenvector with the largest magnitude is
    real and positive.
    """
    return EigResult(*decompositions.general_eigen(_square("eig", x)))


def eigvals(x: ComplexArrayLike, /) -> Any:
    """Return the complex eigenvalues of square matrices, ascending by their real, then by their imaginary parts."""
    return decompositions.general_eigenvalues(_square("eigvals", x))


def svd(x: ComplexArrayLike, /, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Return (U, S, Vh) with x == U * S @ Vh, S in descending order; `full_matrices`: U and Vh are square.

    `hermitian`: the matrices are Hermitian, and only their lower triangles are read.
    """
    x = _hermitian("svd", x, "L") if hermitian else _matrix("svd", x)
    if not compute_uv:
        return decompositions.singular_values(x)
    needs_full = full_matrices and x.shape[-2] != x.shape[-1]
    return SVDResult(*(decompositions.full_svd if needs_full else decompositions.reduced_svd)(x))


def svdvals(x: ComplexArrayLike, /) -> Any:
    """Return the singular values of each matrix in descending order."""
    return decompositions.singular_values(_matrix("svdvals", x))


def _matrix(name: str, x: ComplexArrayLike) -> Operand:
    (x,) = promote_to_inexact(x)
    if x.ndim < 2:
        refuse(ShapeError(f"{name}: an array of shape {x.shape}; expected a matrix, at least two axes"))
    return x


def _square(name: str, x: ComplexArrayLike) -> Operand:
    x = _matrix(name, x)
    if x.shape[-1] != x.shape[-2]:
        refuse(ShapeError(f"{name}: an array of shape {x.shape}; expected square matrices along the last two axes"))
    return x


def _hermitian(name: str, x: ComplexArrayLike, triangle: str) -> Operand:
    """Return the Hermitian matrices given by one triangle of `x`, and the real part of its diagonal."""
    x = _square(name, x)
    if triangle not in ("L", "U"):
        refuse(ArgumentError(f'{name}: UPLO {triangle!r}; expected "L" or "U"'))
    with_diagonal, without_diagonal = (tril(x), tril(x, k=-1)) if triangle == "L" else (triu(x), triu(x, k=1))
    if not is_complex(x):
        return add(with_diagonal, matrix_transpose(without_diagonal))
    real_triangle, imag_triangle = real(without_diagonal), imag(without_diagonal)
    return from_parts(
        add(real(with_diagonal), matrix_transpose(real_triangle)), subtract(imag_triangle, matrix_transpose(imag_triangle))
    )


def __getattr__(name: str) -> Any:
    raise_unsupported_name("dlc.numpy.linalg", name, {})


validate_arguments(globals(), converters=numpy_converters(np.linalg, __all__))

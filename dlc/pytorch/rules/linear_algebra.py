"""Matrix decompositions and linear systems. Singular inputs give infinities and NaN instead of errors."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax
from dlc.errors import UnsupportedError
from dlc.frontend.complex_numbers import is_complex
from dlc.numpy import decompositions, linalg
from dlc.numpy.apply import convert, refuse
from dlc.pytorch.rules.rule_table import RuleTable
from dlc.shapes.traced_dims import untraced

table = RuleTable()


def _empty(x: Any) -> Any:
    """Return an empty array of the dtype of `x`."""
    return dnp.astype(dnp.zeros((0,), np.float32), x.dtype)


def _no_errors(x: Any) -> Any:
    return dnp.zeros(x.shape[:-2], np.int32)


@table("linalg_inv_ex")
def inverse(x: Any, check_errors: bool = False) -> Any:
    return linalg.inv(x), _no_errors(x)


@table("linalg_cholesky_ex")
def cholesky(x: Any, upper: bool = False, check_errors: bool = False) -> Any:
    return linalg.cholesky(x, upper=upper), _no_errors(x)


def _lu_with_pivots(x: Any) -> tuple[Any, Any]:
    """Return the LU factors of `x` and LAPACK's pivots: the 1-based index of the row that each row is swapped with."""
    factors, _, pivots = decompositions.lu_factors(x)
    return factors, convert(dnp.add(pivots, 1), np.int32)


@table("linalg_lu_factor_ex")
def lu_factor(x: Any, pivot: bool = True, check_errors: bool = False) -> Any:
    _require_pivots(x, pivot)
    return (*_lu_with_pivots(x), _no_errors(x))


def _order(pivots: Any, rows: Any) -> Any:
    """Return the row permutation that LAPACK's pivots encode."""
    positions = dnp.arange(rows)

    def swapped(k: Any, order: Any) -> Any:
        other = dnp.subtract(dnp.take(pivots, k, axis=-1)[..., None], 1)
        first, second = (dnp.take_along_axis(order, dnp.broadcast_to(i, other.shape), -1) for i in (k, other))
        return dnp.where(dnp.equal(positions, k), second, dnp.where(dnp.equal(positions, other), first, order))

    start = dnp.broadcast_to(positions, (*pivots.shape[:-1], rows))
    if untraced(pivots.shape[-1]) == 0:
        # The body is traced even for zero steps, and would index an empty array.
        return start
    return lax.fori_loop(0, pivots.shape[-1], swapped, start)


@table("linalg_lu_solve")
def lu_solve(factors: Any, pivots: Any, b: Any, left: bool = True, adjoint: bool = False) -> Any:
    """Solve A·x = b, or x·A = b if not `left`, from the LU factors of A; with the conjugate transpose of A if `adjoint`."""
    if not left:
        return decompositions.adjoint(lu_solve(factors, pivots, decompositions.adjoint(b), True, not adjoint))
    order = _order(pivots, pivots.shape[-1])
    batch = np.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    factors, b = (dnp.broadcast_to(v, (*batch, *v.shape[-2:])) for v in (factors, b))

    def take_rows(x: Any, rows: Any) -> Any:
        return dnp.take_along_axis(x, dnp.broadcast_to(rows[..., None], x.shape), -2)

    if not adjoint:
        intermediate = solve_triangular(factors, take_rows(b, order), False, True, True)
        return solve_triangular(factors, intermediate, True)
    factors = decompositions.adjoint(factors)
    permuted = solve_triangular(factors, solve_triangular(factors, b, False), True, True, True)
    return take_rows(permuted, dnp.argsort(order, -1))


@table("_linalg_solve_ex")
def solve(a: Any, b: Any, left: bool = True, check_errors: bool = False) -> Any:
    factors = (*_lu_with_pivots(a), _no_errors(a))
    if left and 1 < b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]:
        # A batch of vectors, which NumPy would interpret as one matrix.
        return (linalg.solve(a, b[..., None])[..., 0], *factors)
    if left:
        return (linalg.solve(a, b), *factors)
    return (_transpose_matrix(linalg.solve(_transpose_matrix(a), _transpose_matrix(b))), *factors)


LAYOUT_DEPENDENT_OPS = ("_linalg_det", "_linalg_slogdet")


def _determinant_factors(x: Any, contiguous: bool) -> tuple[Any, Any]:
    """Return LU factors and pivots; for a real contiguous `x` of its transpose, which is column-major as LAPACK requires."""
    return _lu_with_pivots(_transpose_matrix(x) if contiguous and not is_complex(x) else x)


@table("_linalg_det")
def determinant(x: Any, *, contiguous: bool) -> Any:
    return (linalg.det(x), *_determinant_factors(x, contiguous))


@table("_linalg_slogdet")
def log_determinant(x: Any, *, contiguous: bool) -> Any:
    return (*linalg.slogdet(x), *_determinant_factors(x, contiguous))


@table("linalg_qr")
def qr(x: Any, mode: str = "reduced") -> Any:
    # In mode "r" PyTorch returns an empty Q, NumPy only R.
    return (_empty(x), linalg.qr(x, mode="r")) if mode == "r" else linalg.qr(x, mode=mode)


@table("geqrf")
def geqrf(x: Any) -> Any:
    return decompositions.packed_qr(x)


def _reflected(x: Any, tau: Any, other: Any, transpose: bool) -> Any:
    """Return Q·other, or Qᴴ·other: Q is the product of the reflections 1 - tau·v·vᴴ.

    Each v is a column of `x`: 1 on the diagonal, and the elements below it.
    """
    count, rows = tau.shape[-1], dnp.arange(x.shape[-2])
    if count == 0:
        return other
    tau = dnp.conj(tau) if transpose else tau

    def reflect(step: Any, other: Any) -> Any:
        k = step if transpose else dnp.subtract(count - 1, step)
        unit = convert(dnp.equal(rows, k), decompositions.real_dtype(x))
        v = dnp.where(dnp.greater(rows, k), dnp.take(x, k, axis=-1), unit)[..., None]
        scaled = dnp.multiply(v, dnp.take(tau, k, axis=-1)[..., None, None])
        return dnp.subtract(other, dnp.matmul(scaled, dnp.matmul(decompositions.adjoint(v), other)))

    return lax.fori_loop(0, count, reflect, other)


@table("linalg_householder_product")
def householder_product(x: Any, tau: Any) -> Any:
    identity = dnp.astype(dnp.eye(*x.shape[-2:]), x.dtype)
    return _reflected(x, tau, dnp.broadcast_to(identity, x.shape), False)


@table("ormqr")
def product_with_reflections(x: Any, tau: Any, other: Any, left: bool = True, transpose: bool = False) -> Any:
    if not left:
        return decompositions.adjoint(_reflected(x, tau, decompositions.adjoint(other), not transpose))
    return _reflected(x, tau, other, transpose)


@table("_linalg_eigh")
def eigh(x: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    return tuple(linalg.eigh(x, UPLO)) if compute_v else (linalg.eigvalsh(x, UPLO), _empty(x))


@table("linalg_eig")
def eig(x: Any) -> Any:
    return tuple(linalg.eig(x))


@table("linalg_eigvals _linalg_eigvals")
def eigvals(x: Any) -> Any:
    return linalg.eigvals(x)


@table("_linalg_svd")
def svd(x: Any, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None) -> Any:
    if compute_uv:
        return tuple(linalg.svd(x, full_matrices))
    return _empty(x), linalg.svdvals(x), _empty(x)


@table("linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(x: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """Pseudo-inverse; singular values below max(`atol`, `rtol` · largest) count as 0.

    Of a Hermitian matrix the lower triangle is read.
    """
    if hermitian:
        x = dnp.add(dnp.tril(x), decompositions.adjoint(dnp.tril(x, k=-1)))
    if atol is None:
        return linalg.pinv(x, rtol=rtol)
    largest = dnp.max(linalg.svdvals(x), -1, initial=0)
    relative = dnp.divide(atol, dnp.where(dnp.equal(largest, 0), 1, largest))
    return linalg.pinv(x, rtol=relative if rtol is None else dnp.maximum(relative, rtol))


@table("linalg_solve_triangular")
def solve_triangular(a: Any, b: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    if not left:
        return _transpose_matrix(solve_triangular(_transpose_matrix(a), _transpose_matrix(b), not upper, True, unitriangular))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (dnp.broadcast_to(v, (*batch, *v.shape[-2:])) for v in (a, b))
    return decompositions.triangular_solve(a, b, lower=not upper, unit=unitriangular)


def _transpose_matrix(x: Any) -> Any:
    return dnp.swapaxes(x, -1, -2)


@table("triangular_solve")
def triangular_solve(b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    matrix, upper = (_transpose_matrix(a), not upper) if transpose else (a, upper)
    return solve_triangular(matrix, b, upper, True, unitriangular), a


@table("cholesky")
def cholesky_factor(x: Any, upper: bool = False) -> Any:
    return linalg.cholesky(x, upper=upper)


@table("cholesky_solve")
def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    """Solve A·x = b from the Cholesky factor of A: A = L·Lᴴ, or Uᴴ·U if `upper`."""
    lower = decompositions.adjoint(factor) if upper else factor
    return solve_triangular(decompositions.adjoint(lower), solve_triangular(lower, b, False), True)


@table("cholesky_inverse")
def cholesky_inverse(factor: Any, upper: bool = False) -> Any:
    identity = dnp.astype(dnp.eye(factor.shape[-1]), factor.dtype)
    return cholesky_solve(dnp.broadcast_to(identity, factor.shape), factor, upper)


# Coefficients of the numerator of the degree-13 Padé approximant of exp(x); in the denominator odd powers are negated.
# Source: Higham, "The scaling and squaring method for the matrix exponential revisited" (2005).
_PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip


@table("linalg_matrix_exp")
def matrix_exponential(x: Any) -> Any:
    """Scaling and squaring: exp(x) = exp(x/2ˢ)^(2ˢ).

    For each matrix, s is the smallest number for which the norm of x/2ˢ is at most 4.
    """
    norm = dnp.max(dnp.sum(dnp.abs(x), -2), -1)
    squarings = dnp.maximum(dnp.ceil(dnp.log2(dnp.maximum(dnp.divide(norm, 4.0), 1.0))), 0.0)
    scaled_x = dnp.multiply(x, dnp.reshape(dnp.exp2(dnp.negative(squarings)), (*x.shape[:-2], 1, 1)))
    dtype = decompositions.real_dtype(x)
    identity = dnp.eye(x.shape[-1], dtype=dtype)
    square = dnp.matmul(scaled_x, scaled_x)
    even, odd, power = dnp.multiply(identity, _PADE[0]), dnp.multiply(identity, _PADE[1]), identity
    for k in range(2, 14, 2):
        power = dnp.matmul(power, square) if k > 2 else square
        even, odd = dnp.add(even, dnp.multiply(power, _PADE[k])), dnp.add(odd, dnp.multiply(power, _PADE[k + 1]))
    odd = dnp.matmul(scaled_x, odd)
    approximant = linalg.solve(dnp.subtract(even, odd), dnp.add(even, odd))

    def square_if_needed(state: Any) -> Any:
        step, y = state
        must_square = dnp.reshape(dnp.less(step, squarings), (*x.shape[:-2], 1, 1))
        return dnp.add(step, 1.0), dnp.where(must_square, dnp.matmul(y, y), y)

    start = np.zeros((), dtype)
    return lax.while_loop(lambda state: dnp.less(state[0], dnp.max(squarings)), square_if_needed, (start, approximant))[1]


def _require_pivots(x: Any, pivot: bool) -> None:
    if not pivot:
        refuse(UnsupportedError("linalg.lu with pivot=False is not supported; use pivot=True"))


@table("linalg_lu")
def lu(x: Any, pivot: bool = True) -> Any:
    """Return (P, L, U) with P·L·U = x."""
    _require_pivots(x, pivot)
    factors, order, _ = decompositions.lu_factors(x)
    return _permutation_matrix(order, x.dtype), *_triangles(factors)


def _permutation_matrix(order: Any, dtype: Any) -> Any:
    """Return the permutation matrix that sends row k of a product to row `order[k]`."""
    rows = dnp.expand_dims(dnp.arange(order.shape[-1]), -1)
    return dnp.astype(dnp.equal(dnp.expand_dims(order, -2), rows), dtype)


def _triangles(factors: Any) -> tuple[Any, Any]:
    rows, columns = factors.shape[-2:]
    rank = min(rows, columns)
    lower = dnp.add(dnp.tril(factors[..., :rank], k=-1), dnp.eye(rows, rank, dtype=decompositions.real_dtype(factors)))
    return lower, dnp.triu(factors[..., :rank, :])


@table("lu_unpack")
def lu_unpack(factors: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    empty = _empty(factors)
    permutation = _permutation_matrix(_order(pivots, factors.shape[-2]), factors.dtype) if unpack_pivots else empty
    return (permutation, *_triangles(factors)) if unpack_data else (permutation, empty, empty)

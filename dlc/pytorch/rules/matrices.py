"""Factors of matrices, and what is made of them. That a matrix has none is seen in the numbers, infinities and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax
from dlc.dialects import dl
from dlc.errors import UnsupportedError
from dlc.numpy import linalg
from dlc.numpy.apply import apply, convert, refuse
from dlc.numpy.factors import triangles
from dlc.pytorch.rules.table import Table

table = Table()


def _no_errors(x: Any) -> Any:
    return dnp.zeros(x.shape[:-2], np.int32)


@table("linalg_inv_ex")
def inverse(x: Any, check_errors: bool = False) -> Any:
    return linalg.inv(x), _no_errors(x)


@table("linalg_cholesky_ex")
def cholesky(x: Any, upper: bool = False, check_errors: bool = False) -> Any:
    return linalg.cholesky(x, upper=upper), _no_errors(x)


def _by_lu(x: Any) -> tuple[Any, Any]:
    """The factors of `x`, and with which row each one is exchanged, the first of all being called 1."""
    factors, _, pivots = triangles(x)
    return factors, convert(dnp.add(pivots, 1), np.int32)


@table("linalg_lu_factor_ex")
def lu_factor(x: Any, pivot: bool = True, check_errors: bool = False) -> Any:
    _require_pivots(x, pivot)
    return (*_by_lu(x), _no_errors(x))


def _order(pivots: Any, rows: int) -> Any:
    """The rows that exchanges make of 0, 1, 2, …"""
    places = np.arange(rows)

    def exchanged(k: Any, order: Any) -> Any:
        other = dnp.subtract(dnp.take(pivots, k, axis=-1)[..., None], 1)
        mine, its = (dnp.take_along_axis(order, dnp.broadcast_to(i, other.shape), -1) for i in (k, other))
        return dnp.where(dnp.equal(places, k), its, dnp.where(dnp.equal(places, other), mine, order))

    start = dnp.broadcast_to(places, (*pivots.shape[:-1], rows))
    if pivots.shape[-1] == 0:
        # Even what a loop without steps would take must be there.
        return start
    return lax.fori_loop(0, int(pivots.shape[-1]), exchanged, start)


@table("linalg_lu_solve")
def lu_solve(factors: Any, pivots: Any, b: Any, left: bool = True, adjoint: bool = False) -> Any:
    """x for which A·x = b, or x·A = b, of the factors of A; of its transpose if `adjoint`."""
    if not left:
        return _turned(lu_solve(factors, pivots, _turned(b), True, not adjoint))
    order = _order(pivots, int(pivots.shape[-1]))
    batch = np.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    factors, b = (dnp.broadcast_to(v, (*batch, *v.shape[-2:])) for v in (factors, b))

    def taken(x: Any, rows: Any) -> Any:
        return dnp.take_along_axis(x, dnp.broadcast_to(rows[..., None], x.shape), -2)

    if not adjoint:
        half = solve_triangular(factors, taken(b, order), False, True, True)
        return solve_triangular(factors, half, True)
    turned = _turned(factors)
    return taken(solve_triangular(turned, solve_triangular(turned, b, False), True, True, True), dnp.argsort(order, -1))


@table("_linalg_solve_ex")
def solve(a: Any, b: Any, left: bool = True, check_errors: bool = False) -> Any:
    factors = (*_by_lu(a), _no_errors(a))
    if left and 1 < b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]:
        # A vector for each matrix, which NumPy takes for one matrix.
        return (linalg.solve(a, b[..., None])[..., 0], *factors)
    if left:
        return (linalg.solve(a, b), *factors)
    return (_turned(linalg.solve(_turned(a), _turned(b))), *factors)


# Where `x` lies in the order of its axes, PyTorch gives the factors of its transpose, which lies as LAPACK has matrices.
OF_LAYOUT = ("_linalg_det", "_linalg_slogdet")


@table("_linalg_det")
def determinant(x: Any, *, contiguous: bool) -> Any:
    return (linalg.det(x), *_by_lu(_turned(x) if contiguous else x))


@table("_linalg_slogdet")
def log_determinant(x: Any, *, contiguous: bool) -> Any:
    return (*linalg.slogdet(x), *_by_lu(_turned(x) if contiguous else x))


@table("linalg_qr")
def qr(x: Any, mode: str = "reduced") -> Any:
    # Without the one of them, NumPy gives the other alone.
    return (dnp.zeros((0,), x.dtype), linalg.qr(x, mode="r")) if mode == "r" else linalg.qr(x, mode=mode)


@table("_linalg_eigh")
def eigh(x: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    return tuple(linalg.eigh(x, UPLO)) if compute_v else (linalg.eigvalsh(x, UPLO), dnp.zeros((0,), x.dtype))


@table("_linalg_svd")
def svd(x: Any, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None) -> Any:
    if compute_uv:
        return tuple(linalg.svd(x, full_matrices))
    none = dnp.zeros((0,), x.dtype)
    return none, linalg.svdvals(x), none


@table("linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(x: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """Singular values below the larger of `atol` and `rtol` times the largest count as 0."""
    if atol is None:
        return linalg.pinv(x, rtol=rtol)
    largest = dnp.max(linalg.svdvals(x), -1, initial=0)
    relative = dnp.divide(atol, dnp.where(dnp.equal(largest, 0), 1, largest))
    return linalg.pinv(x, rtol=relative if rtol is None else dnp.maximum(relative, rtol))


@table("linalg_solve_triangular")
def solve_triangular(a: Any, b: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    if not left:
        turned = solve_triangular(_turned(a), _turned(b), not upper, True, unitriangular)
        return _turned(turned)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (dnp.broadcast_to(v, (*batch, *v.shape[-2:])) for v in (a, b))
    return apply(dl.TriangularSolveOp, a, b, lower=not upper, unit=unitriangular)


def _turned(x: Any) -> Any:
    return dnp.swapaxes(x, -1, -2)


@table("triangular_solve")
def triangular_solve(b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    given, upper = (_turned(a), not upper) if transpose else (a, upper)
    return solve_triangular(given, b, upper, True, unitriangular), a


@table("cholesky")
def cholesky_factor(x: Any, upper: bool = False) -> Any:
    return linalg.cholesky(x, upper=upper)


@table("cholesky_solve")
def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    """x for which A·x = b, of a factor of A: A = L·Lᵀ, or Uᵀ·U if `upper`."""
    low = _turned(factor) if upper else factor
    return solve_triangular(_turned(low), solve_triangular(low, b, False), True)


@table("cholesky_inverse")
def cholesky_inverse(factor: Any, upper: bool = False) -> Any:
    return cholesky_solve(np.broadcast_to(np.eye(int(factor.shape[-1]), dtype=factor.dtype), factor.shape), factor, upper)


# Coefficients of the numerator of exp(x)'s Padé approximant of degree 13; those of odd powers have the other sign below.
# Source: Higham, "The scaling and squaring method for the matrix exponential revisited" (2005).
_PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip


@table("linalg_matrix_exp")
def matrix_exponential(x: Any) -> Any:
    """exp(x) = exp(x/2ˢ)^(2ˢ), of the first s of which the norm of x/2ˢ is at most 4, for each matrix."""
    size = dnp.max(dnp.sum(dnp.abs(x), -2), -1)
    squarings = dnp.maximum(dnp.ceil(dnp.log2(dnp.maximum(dnp.divide(size, 4.0), 1.0))), 0.0)
    small = dnp.multiply(x, dnp.reshape(dnp.exp2(dnp.negative(squarings)), (*x.shape[:-2], 1, 1)))
    one = np.eye(int(x.shape[-1]), dtype=x.dtype)
    square = dnp.matmul(small, small)
    even, odd, power = dnp.multiply(one, _PADE[0]), dnp.multiply(one, _PADE[1]), one
    for k in range(2, 14, 2):
        power = dnp.matmul(power, square) if k > 2 else square
        even, odd = dnp.add(even, dnp.multiply(power, _PADE[k])), dnp.add(odd, dnp.multiply(power, _PADE[k + 1]))
    odd = dnp.matmul(small, odd)
    found = linalg.solve(dnp.subtract(even, odd), dnp.add(even, odd))

    def squared(state: Any) -> Any:
        step, y = state
        wanted = dnp.reshape(dnp.less(step, squarings), (*x.shape[:-2], 1, 1))
        return dnp.add(step, 1.0), dnp.where(wanted, dnp.matmul(y, y), y)

    start = np.zeros((), x.dtype)
    return lax.while_loop(lambda state: dnp.less(state[0], dnp.max(squarings)), squared, (start, found))[1]


def _require_pivots(x: Any, pivot: bool) -> None:
    if not pivot:
        refuse(UnsupportedError(f"linalg.lu of {x.shape[-2]} × {x.shape[-1]} without pivots; with them it is"))


@table("linalg_lu")
def lu(x: Any, pivot: bool = True) -> Any:
    """(P, L, U), for which P·L·U = x."""
    _require_pivots(x, pivot)
    factors, order, _ = triangles(x)
    return _rows_at(order, x.dtype), *_triangles(factors)


def _rows_at(order: Any, dtype: Any) -> Any:
    """The matrix that puts its row k, of a product, at place `order[k]`."""
    return convert(dnp.equal(dnp.expand_dims(order, -2), np.arange(int(order.shape[-1])).reshape(-1, 1)), dtype)


def _triangles(factors: Any) -> tuple[Any, Any]:
    rows, columns = map(int, factors.shape[-2:])
    least = min(rows, columns)
    lower = dnp.add(dnp.tril(factors[..., :least], k=-1), np.eye(rows, least, dtype=factors.dtype))
    return lower, dnp.triu(factors[..., :least, :])


@table("lu_unpack")
def lu_unpack(factors: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    none = dnp.zeros((0,), factors.dtype)
    rows = _rows_at(_order(pivots, int(factors.shape[-2])), factors.dtype) if unpack_pivots else none
    return (rows, *_triangles(factors)) if unpack_data else (rows, none, none)

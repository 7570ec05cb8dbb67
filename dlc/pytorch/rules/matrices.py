"""Factors of matrices, and what is made of them. That a matrix has none is seen in the numbers, infinities and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax
from dlc.dialects import dl
from dlc.errors import UnsupportedError
from dlc.numpy import linalg
from dlc.numpy.apply import apply, apply_all, convert, refuse
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


@table("_linalg_solve_ex")
def solve(a: Any, b: Any, left: bool = True, check_errors: bool = False) -> Any:
    if left and 1 < b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]:
        # A vector for each matrix, which NumPy takes for one matrix.
        return linalg.solve(a, b[..., None])[..., 0], None, None, _no_errors(a)
    if left:
        return linalg.solve(a, b), None, None, _no_errors(a)
    return _turned(linalg.solve(_turned(a), _turned(b))), None, None, _no_errors(a)


@table("_linalg_det")
def determinant(x: Any) -> Any:
    return linalg.det(x), None, None


@table("_linalg_slogdet")
def log_determinant(x: Any) -> Any:
    return (*linalg.slogdet(x), None, None)


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
    largest = dnp.max(linalg.svdvals(x), -1)
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


@table("linalg_lu")
def lu(x: Any, pivot: bool = True) -> Any:
    """(P, L, U) of square matrices, for which P·L·U = x."""
    if not pivot or x.shape[-2] != x.shape[-1]:
        refuse(
            UnsupportedError(f"linalg.lu of {x.shape[-2]} × {x.shape[-1]}{'' if pivot else ' without pivots'}; square, with")
        )
    factors, order, _, _ = apply_all(dl.LuOp, x)
    size = int(x.shape[-1])
    lower = dnp.add(dnp.tril(factors, k=-1), np.eye(size, dtype=x.dtype))
    rows = dnp.equal(dnp.expand_dims(order, -2), np.arange(size).reshape(-1, 1))
    return convert(rows, x.dtype), lower, dnp.triu(factors)

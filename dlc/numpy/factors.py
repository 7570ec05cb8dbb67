"""Factors of matrices and what is made of them, with their derivatives: what `dlc.numpy.linalg` computes with.

Operands are of one float dtype, f32 or wider. Derivatives are formulas of the factors, not those of the steps by which these
are found. Source of the formulas: Giles, "Collected matrix derivative results for forward and reverse mode" (2008).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.numpy.apply import Operand, apply, apply_all, convert, in_wide_type
from dlc.numpy.functions.comparing import equal, greater, greater_equal
from dlc.numpy.functions.creation import tril
from dlc.numpy.functions.elementwise import abs, add, divide, log, multiply, negative, sign, subtract, where
from dlc.numpy.functions.indexing import getitem, take_along_axis
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.linear import matmul, trace
from dlc.numpy.functions.reductions import max, prod, sum
from dlc.numpy.functions.shaping import diagonal, expand_dims, matrix_transpose
from dlc.numpy.rules import with_tangent

Operands = Sequence[Operand]


# Triangles


def triangles(x: Operand) -> tuple[Any, Any, Any]:
    """What `dl.lu` has of matrices of any shape [.., m, n]: factors of that shape, the order of m rows, and the pivots.

    L is [.., m, k] and U [.., k, n], where k is the smaller size, and so many pivots there are. Zeros make a matrix square:
    columns of them need no elimination, and rows of them are no pivots.
    """
    (rows, columns), (least, size) = x.shape[-2:], sorted(x.shape[-2:])
    square: Any = x
    if rows != columns:
        zero, high = np.zeros((), x.dtype), [*[0] * (x.ndim - 2), size - rows, size - columns]
        square = apply(dl.PadOp, x, zero, low=[0] * x.ndim, high=high, pad_mode="constant")
    factors, order, _, pivots = apply_all(dl.LuOp, square)
    factors = getitem(factors, (..., slice(rows), slice(columns)))
    return factors, getitem(order, (..., slice(rows))), getitem(pivots, (..., slice(least)))


# Systems


def _by_lu(a: Operand, permuted: Callable[[Any], Any]) -> Any:
    """The x for which a·x = b, from the rows of b in the order that they have in the factors of `a`."""
    factors, order, _, _ = apply_all(dl.LuOp, a)
    half = apply(dl.TriangularSolveOp, factors, permuted(order), lower=True, unit=True)
    return apply(dl.TriangularSolveOp, factors, half)


def _solved_tangent(x: Operand, operands: Operands, tangents: Operands) -> Any:
    """That of the right side, less what the change of `a` makes of the solution, solved for."""
    return solved(operands[0], subtract(tangents[1], matmul(tangents[0], x)))


@in_wide_type
@with_tangent(_solved_tangent)
def solved(a: Operand, columns: Operand) -> Any:
    def taken(order: Any) -> Any:
        return take_along_axis(columns, expand_dims(order, -1), -2)

    return _by_lu(a, taken)


@in_wide_type
@with_tangent(lambda y, _, tangents: negative(matmul(matmul(y, tangents[0]), y)))
def inverse(x: Operand) -> Any:
    def ones(order: Any) -> Any:
        """The rows of the unit matrix."""
        return convert(equal(expand_dims(order, -1), _places(x.shape[-1])), x.dtype)

    return _by_lu(x, ones)


@lru_cache(maxsize=256)
def _places(size: int) -> Array:
    """The numbers of rows: one constant of a program, however often it is used."""
    return np.arange(size)


# Determinants


def _pivots(x: Operand) -> tuple[Any, Any]:
    factors, _, flips, _ = apply_all(dl.LuOp, x)
    return diagonal(factors, 0, -2, -1), flips


@in_wide_type
@with_tangent(lambda _, operands, tangents: sum(multiply(_cofactors(operands[0]), tangents[0]), (-2, -1)))
def determinant(x: Operand) -> Any:
    pivots, flips = _pivots(x)
    return multiply(prod(pivots, -1), flips)


def _cofactors_tangent(y: Operand, operands: Operands, tangents: Operands) -> Any:
    """det(x)·x⁻ᵀ changes by y·tr(x⁻¹·dx) - y·(x⁻¹·dx)ᵀ."""
    once = matmul(inverse(operands[0]), tangents[0])
    share = expand_dims(trace(once, 0, -2, -1), (-2, -1))
    return subtract(multiply(y, share), matmul(y, matrix_transpose(once)))


@with_tangent(_cofactors_tangent)
def _cofactors(x: Operand) -> Any:
    """det(x)·x⁻ᵀ, which singular matrices have too: the product of all singular values but one, in place of each."""
    left, values, right = singular_vectors(x)
    before, after = (apply(dl.CumprodOp, values, axis=values.ndim - 1, exclusive=True, reverse=r) for r in (False, True))
    others = multiply(multiply(before, after), expand_dims(multiply(determinant(left), determinant(right)), -1))
    return matmul(multiply(left, expand_dims(others, -2)), right)


@in_wide_type
@with_tangent(lambda y, _, __: np.zeros(y.shape, y.dtype))
def determinant_sign(x: Operand) -> Any:
    """The sign of the determinant, which does not follow a small step."""
    pivots, flips = _pivots(x)
    return multiply(prod(sign(pivots), -1), flips)


@in_wide_type
@with_tangent(lambda _, operands, tangents: trace(solved(operands[0], tangents[0]), 0, -2, -1))
def determinant_log_size(x: Operand) -> Any:
    """The logarithm of the size of the determinant."""
    return sum(log(abs(_pivots(x)[0])), -1)


# Triangles


@in_wide_type
def upper_root(x: Operand) -> Any:
    """The upper triangle U for which Uᵀ·U is a positive matrix, of which the upper triangle is read."""
    return apply(dl.CholeskyOp, x)


# Columns of length 1


def _reflections(x: Operand) -> Sequence[Any]:
    """Columns of R, and the reflections that make Q."""
    return apply_all(dl.HouseholderOp, matrix_transpose(x))


@in_wide_type
def triangle_of(x: Operand, rows: int) -> Any:
    """The first rows of the R of Q·R."""
    return matrix_transpose(getitem(_reflections(x)[0], (..., slice(rows))))


@in_wide_type
def all_columns(x: Operand) -> Any:
    """(Q, R) with all columns of Q, which has no derivative: those that R does not need are chosen."""
    columns, vectors, scales = _reflections(x)
    q = apply(dl.OrthogonalOp, vectors, scales, count=x.shape[-2])
    return matrix_transpose(q), matrix_transpose(columns)


def _columns_tangent(factors: tuple[Any, Any], _: Operands, tangents: Operands) -> Any:
    """With s = Qᵀ·dx·R⁻¹ and w = the lower triangle of s less its transpose: dQ = dx·R⁻¹ + Q·(w - s), dR = (s - w)·R."""
    (q, r), (dx,) = factors, tangents
    moved = matrix_transpose(apply(dl.TriangularSolveOp, matrix_transpose(r), matrix_transpose(dx), lower=True))
    s = matmul(matrix_transpose(q), moved)
    below = tril(s, k=-1)
    rest = subtract(subtract(below, matrix_transpose(below)), s)
    return add(moved, matmul(q, rest)), negative(matmul(rest, r))


@in_wide_type
@with_tangent(_columns_tangent)
def columns(x: Operand) -> Any:
    """(Q, R) of matrices with no more columns than rows, with as many columns of Q."""
    found, vectors, scales = _reflections(x)
    count = x.shape[-1]
    q = apply(dl.OrthogonalOp, vectors, scales, count=count)
    return matrix_transpose(q), matrix_transpose(getitem(found, (..., slice(count))))


# Eigenvalues and singular values


def _reciprocal(x: Any) -> Any:
    """1/x, 0 where x is: vectors of equal values may be turned, so that how they change is not defined."""
    zero = equal(x, 0)
    return where(zero, 0, divide(1, where(zero, 1, x)))


def _gaps(x: Any) -> Any:
    """x_j - x_i"""
    return subtract(expand_dims(x, -2), expand_dims(x, -1))


def _in_vectors(left: Any, dx: Any, right: Any) -> Any:
    return matmul(matmul(matrix_transpose(left), dx), right)


def _eigenvectors_tangent(results: tuple[Any, Any], _: Operands, tangents: Operands) -> Any:
    """With s = Vᵀ·dx·V: dw = the diagonal of s, dV = V·(s_ij / (w_j - w_i))."""
    w, v = results
    s = _in_vectors(v, tangents[0], v)
    return diagonal(s, 0, -2, -1), matmul(v, multiply(s, _reciprocal(_gaps(w))))


@in_wide_type
@with_tangent(_eigenvectors_tangent)
def eigenvectors(x: Operand) -> Any:
    """(w, V) of symmetric matrices."""
    w, rows = apply_all(dl.EighOp, x, vectors=True)
    return w, matrix_transpose(rows)


def _eigenvalues_tangent(_: Operand, operands: Operands, tangents: Operands) -> Any:
    v = eigenvectors(operands[0])[1]
    return sum(multiply(v, matmul(tangents[0], v)), -2)


@in_wide_type
@with_tangent(_eigenvalues_tangent)
def eigenvalues(x: Operand) -> Any:
    return apply_all(dl.EighOp, x, vectors=False)[0]


def _singular_tangent(results: tuple[Any, Any, Any], _: Operands, tangents: Operands) -> Any:
    """With p = Uᵀ·dx·V and f_ij = 1/(s_j² - s_i²): ds = the diagonal of p, and

    dU = U·(f∘(p·s + s·pᵀ)) + (1 - U·Uᵀ)·dx·V/s, dV = V·(f∘(s·p + pᵀ·s)) + (1 - V·Vᵀ)·dxᵀ·U/s.
    """
    (u, s, vt), (dx,) = results, tangents
    v = matrix_transpose(vt)
    p = _in_vectors(u, dx, v)
    turned, across, down = matrix_transpose(p), expand_dims(s, -2), expand_dims(s, -1)
    f, shares = _reciprocal(_gaps(multiply(s, s))), _reciprocal(across)

    def change(of: Any, turning: Any, moved: Any) -> Any:
        within = matmul(of, multiply(f, turning))
        if of.shape[-2] == of.shape[-1]:
            return within
        outside = subtract(moved, matmul(of, matmul(matrix_transpose(of), moved)))
        return add(within, multiply(outside, shares))

    du = change(u, add(multiply(p, across), multiply(down, turned)), matmul(dx, v))
    dv = change(v, add(multiply(down, p), multiply(turned, across)), matmul(matrix_transpose(dx), u))
    return du, diagonal(p, 0, -2, -1), matrix_transpose(dv)


@in_wide_type
@with_tangent(_singular_tangent)
def singular_vectors(x: Operand) -> Any:
    """(U, s, Vᵀ) with as many columns of U and V as there are values."""
    return _by_rotations(x, all_columns=False)


@in_wide_type
def all_singular_vectors(x: Operand) -> Any:
    """(U, s, Vᵀ) with all columns of U and V, which has no derivative: those beyond the values are chosen."""
    return _by_rotations(x, all_columns=True)


def _by_rotations(x: Operand, *, all_columns: bool) -> tuple[Any, Any, Any]:
    """x = Q·R, and R by rotations of its rows: turns·R = s·Vᵀ, so that U = Q·turnsᵀ.

    Rows of length 0 have no direction: V is the Q of their matrix, but for signs.
    """
    rows, count = x.shape[-2:]
    if rows < count:
        v, s, ut = _by_rotations(matrix_transpose(x), all_columns=all_columns)
        return matrix_transpose(ut), s, matrix_transpose(v)
    found, vectors, scales = _reflections(x)
    q = apply(dl.OrthogonalOp, vectors, scales, count=rows if all_columns else count)
    r = matrix_transpose(getitem(found, (..., slice(count))))
    s, turned, turns = _turned(r)
    lengths, vectors, scales = apply_all(dl.HouseholderOp, turned)
    directions = apply(dl.OrthogonalOp, vectors, scales, count=count)
    signs = where(greater_equal(diagonal(lengths, 0, -2, -1), 0), np.ones((), x.dtype), -1)
    vt = multiply(directions, expand_dims(signs, -1))
    u = matmul(turns, getitem(q, (..., slice(count), slice(None))) if all_columns else q)
    if all_columns:
        u = concat([u, getitem(q, (..., slice(count, None), slice(None)))], axis=-2)
    return matrix_transpose(u), s, vt


# From so many rows on it pays to turn them by eigenvectors first.
_MANY_ROWS = 32


def _turned(x: Operand) -> tuple[Any, Any, Any]:
    """(s, rows, turns): turns·x = rows, which are orthogonal, of the lengths s, descending.

    The eigenvectors of x·xᵀ nearly are such turns, but for those of small values; what is left to do is rarely more than to
    see that the rows are orthogonal. Squares of a matrix whose largest element is 1 do not overflow.
    """
    if x.shape[-2] < _MANY_ROWS:
        found = apply_all(dl.SvdOp, x)
        return found[0], found[1], found[2]
    largest = max(abs(x), (-2, -1), keepdims=True)
    unit = divide(x, where(equal(largest, 0), 1, largest))
    first = apply_all(dl.EighOp, matmul(unit, matrix_transpose(unit)), vectors=True)[1]
    s, rows, turns = apply_all(dl.SvdOp, matmul(first, x))
    return s, rows, matmul(turns, first)


def _singular_values_tangent(_: Operand, operands: Operands, tangents: Operands) -> Any:
    u, _, vt = singular_vectors(operands[0])
    return sum(multiply(u, matmul(tangents[0], matrix_transpose(vt))), -2)


@in_wide_type
@with_tangent(_singular_values_tangent)
def singular_values(x: Operand) -> Any:
    rows, count = x.shape[-2:]
    if rows < count:
        return singular_values(matrix_transpose(x))
    return _turned(matrix_transpose(getitem(_reflections(x)[0], (..., slice(count)))))[0]


def _kept(s: Any, least: Any) -> Any:
    """1/s of the values above `least` times the largest, 0 of the others."""
    kept = greater(s, multiply(expand_dims(least, -1), getitem(s, (..., slice(1)))))
    return where(kept, divide(1, where(kept, s, 1)), 0)


def _pseudo_inverse_tangent(y: Operand, operands: Operands, tangents: Operands) -> Any:
    """-y·dx·y + y·yᵀ·dxᵀ·(1 - x·y) + (1 - y·x)·dxᵀ·yᵀ·y

    Source: Golub and Pereyra, "The differentiation of pseudo-inverses" (1973).
    """
    (x, _), (dx, _) = operands, tangents
    yt, dxt = matrix_transpose(y), matrix_transpose(dx)
    first, last = matmul(matmul(y, yt), dxt), matmul(dxt, matmul(yt, y))
    change = add(subtract(first, matmul(first, matmul(x, y))), subtract(last, matmul(y, matmul(x, last))))
    return subtract(change, matmul(matmul(y, dx), y))


@in_wide_type
@with_tangent(_pseudo_inverse_tangent)
def pseudo_inverse(x: Operand, least: Operand) -> Any:
    """V·s⁻¹·Uᵀ, without the singular values of at most `least` times the largest."""
    u, s, vt = singular_vectors(x)
    return matmul(matrix_transpose(vt), multiply(matrix_transpose(u), expand_dims(_kept(s, least), -1)))


def _least_squares_tangent(x: Operand, operands: Operands, tangents: Operands) -> Any:
    """With y the inverse of `a` so far as it has one: y·(db - da·x) + y·yᵀ·daᵀ·(b - a·x) + (1 - y·a)·daᵀ·yᵀ·x."""
    (a, b, least), (da, db, _) = operands, tangents
    y = pseudo_inverse(a, least)
    yt, dat = matrix_transpose(y), matrix_transpose(da)
    left = matmul(dat, subtract(b, matmul(a, x)))
    free = matmul(dat, matmul(yt, x))
    change = matmul(y, add(subtract(db, matmul(da, x)), matmul(yt, left)))
    return add(change, subtract(free, matmul(y, matmul(a, free))))


@in_wide_type
@with_tangent(_least_squares_tangent)
def least_squares(a: Operand, b: Operand, least: Operand) -> Any:
    """The shortest x for which a·x is nearest to b, without the singular values of at most `least` times the largest."""
    u, s, vt = singular_vectors(a)
    parts = multiply(matmul(matrix_transpose(u), b), expand_dims(_kept(s, least), -1))
    return matmul(matrix_transpose(vt), parts)

"""Polynomials as vectors of coefficients, the highest power first."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from dlc.errors import ArgumentError, ShapeError
from dlc.frontend.complex_numbers import is_complex
from dlc.numpy.apply import ArrayLike, Operand, convert, operand, promote, promote_to_float, refuse
from dlc.numpy.functions.complex_numbers import ComplexArrayLike
from dlc.numpy.functions.creation import eye, ones, vander, zeros
from dlc.numpy.functions.cumulative import convolve
from dlc.numpy.functions.elementwise import add, divide, multiply, negative, sqrt, square, subtract
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.padding import pad
from dlc.numpy.functions.reductions import sum
from dlc.numpy.functions.shape_manipulation import ravel, reshape, slice_axis
from dlc.numpy.linalg import eigvals, lstsq

__all__ = ["poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval", "roots"]

# Each antiderivative is a step of straight-line code.
_MAX_ORDER_STEPS = 1000


def _coefficients(name: str, p: ArrayLike) -> Operand:
    p = operand(p)
    if p.ndim > 1:
        refuse(ShapeError(f"{name}: coefficients of shape {p.shape}; expected a vector"))
    return ravel(p)


def _pad_to_equal_length(name: str, a1: ArrayLike, a2: ArrayLike) -> list[Operand]:
    vectors = [_coefficients(name, a) for a in (a1, a2)]
    length = max(v.shape[0] for v in vectors)
    return promote(*(pad(v, (length - v.shape[0], 0)) for v in vectors))


def polyadd(a1: ArrayLike, a2: ArrayLike, /) -> Any:
    """Return the sum of two polynomials."""
    return add(*_pad_to_equal_length("polyadd", a1, a2))


def polysub(a1: ArrayLike, a2: ArrayLike, /) -> Any:
    """Return the difference of two polynomials."""
    return subtract(*_pad_to_equal_length("polysub", a1, a2))


def polymul(a1: ArrayLike, a2: ArrayLike, /) -> Any:
    """Return the product of two polynomials."""
    return convolve(_coefficients("polymul", a1), _coefficients("polymul", a2))


def polydiv(u: ArrayLike, v: ArrayLike, /) -> tuple[Any, Any]:
    """Return quotient and remainder; the remainder has one coefficient fewer than `v`, leading zeros included."""
    dividend, divisor = promote_to_float(*(_coefficients("polydiv", a) for a in (u, v)))
    length, order = divisor.shape[0], dividend.shape[0] - divisor.shape[0]
    if order < 0:
        return zeros(1, dividend.dtype), dividend
    quotient: list[Any] = []
    rest: Any = dividend
    for _ in range(order + 1):
        factor = divide(slice_axis(rest, 0, 0, 1), slice_axis(divisor, 0, 0, 1))
        quotient.append(factor)
        shifted = pad(multiply(divisor, factor), (0, rest.shape[0] - length))
        rest = slice_axis(operand(subtract(rest, shifted)), 0, 1, rest.shape[0])
    return concat(quotient), rest


def polyder(p: ArrayLike, /, m: int = 1) -> Any:
    """Return the derivative of order `m`."""
    if m < 0:
        refuse(ArgumentError(f"polyder: m {m}; expected an integer ≥ 0"))
    p = _coefficients("polyder", p)
    p = convert(p, np.int64) if p.dtype.kind in "biu" else p
    for _ in range(min(m, p.shape[0])):
        powers = np.arange(p.shape[0] - 1, 0, -1, dtype=p.dtype)
        p = operand(multiply(slice_axis(p, 0, 0, max(p.shape[0] - 1, 0)), powers))
    return p


def polyint(p: ArrayLike, /, m: int = 1, k: ArrayLike | None = None) -> Any:
    """Return the antiderivative of order `m`; `k` is the integration constant, 0 by default, or `m` of them."""
    if not 0 <= m <= _MAX_ORDER_STEPS:
        refuse(ArgumentError(f"polyint: m {m}; expected from 0 to {_MAX_ORDER_STEPS}"))
    (p,) = promote_to_float(_coefficients("polyint", p))
    constants = ravel(convert(0 if k is None else k, p.dtype))
    if constants.shape[0] not in (1, m):
        refuse(ShapeError(f"polyint: k of shape {constants.shape}; expected a number, or {m} of them"))
    for order in range(m):
        powers = np.arange(p.shape[0], 0, -1, dtype=p.dtype)
        index = order if constants.shape[0] > 1 else 0
        p = operand(concat([divide(p, powers), slice_axis(constants, 0, index, index + 1)]))
    return p


def poly(roots: ArrayLike, /) -> Any:
    """Return the polynomial with these roots and a leading coefficient of one."""
    (roots,) = promote_to_float(roots)
    if roots.ndim != 1:
        refuse(ShapeError(f"poly: roots of shape {roots.shape}; expected a vector"))
    product: Any = ones(1, roots.dtype)
    for k in range(roots.shape[0]):
        linear_factor = concat([ones(1, roots.dtype), negative(slice_axis(roots, 0, k, k + 1))])
        product = convolve(product, linear_factor)
    return product


def roots(p: ArrayLike, /) -> Any:
    """Return the roots, complex, as eigenvalues of the companion matrix. The first coefficient must not be zero."""
    (p,) = promote_to_float(_coefficients("roots", p))
    order = p.shape[0] - 1
    if order < 1:
        return eigvals(zeros((0, 0), p.dtype))
    first_row = reshape(negative(divide(slice_axis(p, 0, 1, order + 1), slice_axis(p, 0, 0, 1))), (1, order))
    return eigvals(concat([first_row, eye(order - 1, order, dtype=p.dtype)]))


def polyfit(x: ArrayLike, y: ArrayLike, deg: int, /, rcond: float | None = None, *, w: ArrayLike | None = None) -> Any:
    """Return the least-squares polynomial of degree `deg` for y at x; `w` are weights of the residuals."""
    x, y = promote_to_float(x, y)
    if x.ndim != 1 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0] or deg < 0:
        refuse(ShapeError(f"polyfit: x of shape {x.shape}, y of shape {y.shape}, deg {deg}; expected a vector x as long as y"))
    powers: Any = vander(x, deg + 1)
    if w is not None:
        weights = convert(w, x.dtype)
        powers = multiply(powers, reshape(weights, (-1, 1)))
        y = multiply(y, reshape(weights, (-1,) + (1,) * (y.ndim - 1)))
    # Columns of norm 1 make the system better conditioned.
    scale = sqrt(sum(square(powers), axis=0))
    tolerance = x.shape[0] * float(np.finfo(x.dtype).eps) if rcond is None else rcond
    solution: Any = operand(lstsq(divide(powers, scale), y, tolerance)[0])
    return divide(solution, reshape(scale, (-1,) + (1,) * (solution.ndim - 1)))


def polyval(p: ComplexArrayLike, x: ComplexArrayLike, /) -> Any:
    """Evaluate the polynomial with coefficients `p`, highest power first, at `x` by Horner's rule."""
    coefficients: Any
    value: Any
    if is_complex(p) or is_complex(x):
        coefficients, value = (v if is_complex(v) else operand(cast(Any, v)) for v in (p, x))
        point, value = value, value * 0
        for k in range(coefficients.shape[0]):
            value = value * point + coefficients[k]
        return value
    coefficients, point = promote(cast(Any, p), cast(Any, x))
    if coefficients.ndim != 1:
        refuse(ShapeError(f"polyval: p of shape {coefficients.shape}; expected a vector"))
    value = multiply(point, 0)
    for k in range(coefficients.shape[0]):
        value = add(multiply(value, point), reshape(slice_axis(coefficients, 0, k, k + 1), ()))
    return value

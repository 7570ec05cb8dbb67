"""Linear algebra of complex matrices by functions of real ones, in which a complex element is the matrix [[a, -b], [b, a]].

Products, sums and inverses of these real matrices represent those of the complex ones, and so do the factors and solutions
that are unique. Each eigenvalue of a Hermitian matrix, and each singular value, occurs twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from dlc.errors import ShapeError
from dlc.frontend.complex_numbers import from_parts, is_complex, real_and_imaginary
from dlc.numpy.apply import operand, refuse
from dlc.numpy.functions.complex_numbers import abs
from dlc.numpy.functions.creation import eye, zeros_like
from dlc.numpy.functions.elementwise import floor_divide, multiply, negative, subtract
from dlc.numpy.functions.indexing import getitem
from dlc.numpy.functions.joining import stack
from dlc.numpy.functions.shape_manipulation import reshape

Function = TypeVar("Function", bound=Callable[..., Any])
# The orders of norms that are defined by singular values.
_SPECTRAL_ORDERS = (2, -2, "nuc")


def for_complex_matrices(rule: Callable[..., Any]) -> Callable[[Function], Function]:
    """Decorate a function of real matrices: `rule` applies it to complex ones. The rule also gets the function."""

    def decorator(function: Function) -> Function:
        @functools.wraps(function)
        def of_matrices(*arguments: Any, **settings: Any) -> Any:
            if any(map(is_complex, arguments)):
                arrays = (np.asarray(x) if isinstance(x, complex) else x for x in arguments)
                return rule(function, *arrays, **settings)
            return function(*arguments, **settings)

        return cast(Function, of_matrices)

    return decorator


def _parts(x: Any) -> tuple[Any, Any]:
    if is_complex(x):
        return real_and_imaginary(x)
    x = operand(x)
    return x, zeros_like(x)


def _real_matrix(x: Any) -> Any:
    """Return complex matrices [m, n] as real ones [2m, 2n]."""
    a, b = _parts(x)
    if a.ndim < 2:
        refuse(ShapeError(f"array of shape {a.shape}; expected a matrix, or a stack of them"))
    *batch, rows, columns = a.shape
    elements = stack([stack([a, negative(b)], -1), stack([b, a], -1)], -3)
    return reshape(elements, (*batch, 2 * rows, 2 * columns))


def _complex_matrix(x: Any) -> Any:
    return from_parts(x[..., ::2, ::2], x[..., 1::2, ::2])


def _real_columns(x: Any) -> Any:
    """Return complex columns [n, k] as real ones [2n, k]."""
    a, b = _parts(x)
    *batch, rows, columns = a.shape
    return reshape(stack([a, b], -2), (*batch, 2 * rows, columns))


def _complex_columns(x: Any) -> Any:
    return from_parts(x[..., ::2, :], x[..., 1::2, :])


def matrix_result(function: Any, x: Any, *arguments: Any, **settings: Any) -> Any:
    """Return a result that is a matrix."""
    return _complex_matrix(function(_real_matrix(x), *arguments, **settings))


def hermitian_result(function: Any, x: Any, *arguments: Any, **settings: Any) -> Any:
    """Return a matrix that a function computes from one triangle; imaginary parts of the diagonal are not read."""
    return _complex_matrix(function(_real_matrix(_with_real_diagonal(x)), *arguments, **settings))


def hermitian_values(function: Any, x: Any, *arguments: Any, **settings: Any) -> Any:
    """Return the eigenvalues that a function computes from one triangle."""
    return function(_real_matrix(_with_real_diagonal(x)), *arguments, **settings)[..., ::2]


def _with_real_diagonal(x: Any) -> Any:
    a, b = _parts(x)
    return from_parts(a, subtract(b, multiply(b, eye(b.shape[-1], dtype=b.dtype))))


def singular_values(function: Any, x: Any) -> Any:
    return function(_real_matrix(x))[..., ::2]


def rank(function: Any, x: Any, *arguments: Any, **settings: Any) -> Any:
    if x.ndim < 2:
        return function(abs(x), *arguments, **settings)
    return floor_divide(function(_real_matrix(x), *arguments, **settings), 2)


def _as_columns(b: Any) -> tuple[Any, bool]:
    """Return right-hand sides as columns, and whether they are one vector."""
    b = b if is_complex(b) else operand(b)
    if b.ndim == 0:
        refuse(ShapeError("b of shape (); expected a vector, or columns"))
    return (b[:, None], True) if b.ndim == 1 else (b, False)


def solution(function: Any, a: Any, b: Any) -> Any:
    columns, is_vector = _as_columns(b)
    x = _complex_columns(function(_real_matrix(a), _real_columns(columns)))
    return x[..., 0] if is_vector else x


def least_squares(function: Any, a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    columns, is_vector = _as_columns(b)
    x, residuals, number, values = function(_real_matrix(a), _real_columns(columns), rcond)
    x = _complex_columns(x)
    return x[..., 0] if is_vector else x, residuals, floor_divide(number, 2), getitem(values, (..., slice(None, None, 2)))


def norm_of_magnitudes(function: Any, x: Any, *arguments: Any, **settings: Any) -> Any:
    return function(abs(x), *arguments, **settings)


def norm_of_matrices(function: Any, x: Any, *, keepdims: bool = False, ord: float | str = "fro") -> Any:
    if ord not in _SPECTRAL_ORDERS:
        return function(abs(x), keepdims=keepdims, ord=ord)
    result = function(_real_matrix(x), keepdims=keepdims, ord=ord)
    return multiply(result, 0.5) if ord == "nuc" else result

"""Complex numbers: the results and operands of Fourier transforms, and their arithmetic.

`dlc.numpy.fft`, `1j * x` and complex arguments create complex arrays, which are pairs of real arrays. They support the
operators + - * / @ ** (integer exponents), == and !=, the functions here, and the functions that act on the real and the
imaginary part separately (componentwise.py); for everything else use `.real` and `.imag`. Derivatives treat the two parts as
two real arrays: the gradient of a real function points in the direction of steepest ascent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from dlc.errors import DTypeError, UnsupportedError
from dlc.frontend.complex_numbers import Complex, from_parts, is_complex, real_and_imaginary
from dlc.frontend.trace import is_python_scalar
from dlc.numpy.apply import ArrayLike, convert, operand, promote_to_float, refuse
from dlc.numpy.functions import comparison as cmp
from dlc.numpy.functions import elementwise as ew
from dlc.numpy.functions import floats, matrix_products, shape_manipulation
from dlc.numpy.functions.creation import ones_like, zeros_like

__all__ = ["abs", "angle", "conj", "exp", "imag", "log", "real", "sqrt"]

# A real or complex scalar or array.
ComplexArrayLike: TypeAlias = "ArrayLike | Complex | complex"


def _parts(x: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part; None as the imaginary part of a real value."""
    return real_and_imaginary(x) if is_complex(x) else (x, None)


def _complex_array(real: Any, imag: Any) -> Any:
    """Return a complex array from its real and imaginary parts, which are broadcast; an imaginary part of None is 0."""
    components = promote_to_float(real, 0.0 if imag is None else imag)
    if components[0].dtype.itemsize < 4:
        components = [convert(component, np.float32) for component in components]
    return from_parts(*shape_manipulation.broadcast_arrays(*components))


def _negate_component(x: Any) -> Any:
    # Negating a Python scalar keeps it weakly typed.
    return None if x is None else -x if is_python_scalar(x) else ew.negative(x)


def _sum(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else ew.add(x, y)


def _add_or_subtract(x: ComplexArrayLike, y: ComplexArrayLike, sign: int = 1) -> Any:
    (a, b), (c, d) = _parts(x), _parts(y)
    return _complex_array(*(_sum(p, q if sign > 0 else _negate_component(q)) for p, q in ((a, c), (b, d))))


def _subtract(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    return _add_or_subtract(x, y, -1)


# (a + b·i)·(c + d·i) = (a·c - b·d) + (a·d + b·c)·i
def _product(multiply: Callable[..., Any]) -> Callable[..., Any]:
    def product(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
        (a, b), (c, d) = _parts(x), _parts(y)

        def multiply_components(p: Any, q: Any) -> Any:
            return None if p is None or q is None else multiply(p, q)

        return _complex_array(
            _sum(multiply_components(a, c), _negate_component(multiply_components(b, d))),
            _sum(multiply_components(a, d), multiply_components(b, c)),
        )

    return product


_multiply = _product(ew.multiply)


def _divide(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    """Divide by Smith's method (Communications of the ACM 5, 1962), which does not overflow in a square."""
    (a, b), (c, d) = _parts(x), _parts(y)
    if d is None:
        return _complex_array(ew.divide(a, c), None if b is None else ew.divide(b, c))
    a, b, c, d = promote_to_float(a, 0.0 if b is None else b, c, d)
    real_is_larger = cmp.greater_equal(ew.abs(c), ew.abs(d))
    p, q = ew.where(real_is_larger, c, d), ew.where(real_is_larger, d, c)
    r = ew.divide(q, p)
    scale = ew.add(p, ew.multiply(q, r))
    real_numerator = ew.where(real_is_larger, ew.add(a, ew.multiply(b, r)), ew.add(ew.multiply(a, r), b))
    imag_numerator = ew.where(real_is_larger, ew.subtract(b, ew.multiply(a, r)), ew.subtract(ew.multiply(b, r), a))
    return _complex_array(ew.divide(real_numerator, scale), ew.divide(imag_numerator, scale))


def _power(x: ComplexArrayLike, n: Any) -> Any:
    if not isinstance(n, int):
        return refuse(UnsupportedError(f"a complex number to the power {n!r}; expected a static integer"))
    if n < 0:
        return _divide(1.0, _power(x, -n))
    result: Any = None
    while n:
        result = (x if result is None else _multiply(result, x)) if n % 2 else result
        n //= 2
        x = _multiply(x, x) if n else x
    return _complex_array(ones_like(_parts(x)[0]), None) if result is None else result


def _equal(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    (a, b), (c, d) = ((p, 0.0 if q is None else q) for p, q in map(_parts, (x, y)))
    return cmp.logical_and(cmp.equal(a, c), cmp.equal(b, d))


def _not_equal(x: ComplexArrayLike, y: ComplexArrayLike) -> Any:
    return cmp.logical_not(_equal(x, y))


# The implementation of operators with a complex operand, by the function of real operands.
COMPLEX_RULES: Mapping[Callable[..., Any], Callable[..., Any]] = {
    ew.add: _add_or_subtract, ew.subtract: _subtract, ew.multiply: _multiply, ew.divide: _divide, ew.power: _power,
    matrix_products.matmul: _product(matrix_products.matmul), cmp.equal: _equal, cmp.not_equal: _not_equal,
}  # fmt: skip


def complex_rule(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the complex implementation of an operator. If there is none, calling the result raises DTypeError."""

    def raise_unsupported(*_: Any) -> Any:
        return refuse(DTypeError(f"{function.__name__} of complex arrays; apply it to .real and .imag"))

    return COMPLEX_RULES.get(function, raise_unsupported)


def real(x: ComplexArrayLike, /) -> Any:
    """Return the real part."""
    return operand(_parts(x)[0])


def imag(x: ComplexArrayLike, /) -> Any:
    """Return the imaginary part; 0 for real arrays."""
    a, b = _parts(x)
    return zeros_like(a) if b is None else operand(b)


def conj(x: ComplexArrayLike, /) -> Any:
    """Return the complex conjugate; real arrays unchanged."""
    a, b = _parts(x)
    return operand(a) if b is None else _complex_array(a, _negate_component(b))


def abs(x: ComplexArrayLike, /) -> Any:
    """Return |x|, also of complex arrays."""
    a, b = _parts(x)
    return ew.abs(a) if b is None else floats.hypot(a, b)


def angle(x: ComplexArrayLike, /) -> Any:
    """Return the argument of a complex number in radians, in [-π, π]; 0 or π for real arrays."""
    a, b = _parts(x)
    return floats.atan2(imag(a) if b is None else b, a)


def exp(x: ComplexArrayLike, /) -> Any:
    """Return eˣ, for complex a + b·i e^a · (cos b + sin b · i)."""
    a, b = _parts(x)
    if b is None:
        return ew.exp(a)
    magnitude = ew.exp(a)
    return _complex_array(ew.multiply(magnitude, ew.cos(b)), ew.multiply(magnitude, ew.sin(b)))


def log(x: ComplexArrayLike, /) -> Any:
    """Return ln x; for complex x, ln |x| as the real part and the argument as the imaginary part."""
    a, b = _parts(x)
    return ew.log(a) if b is None else _complex_array(ew.log(floats.hypot(a, b)), floats.atan2(b, a))


def sqrt(x: ComplexArrayLike, /) -> Any:
    """Return √x; for complex x, the root with half the argument."""
    a, b = _parts(x)
    if b is None:
        return ew.sqrt(a)
    root_magnitude, half_angle = ew.sqrt(floats.hypot(a, b)), ew.multiply(floats.atan2(b, a), 0.5)
    return _complex_array(ew.multiply(root_magnitude, ew.cos(half_angle)), ew.multiply(root_magnitude, ew.sin(half_angle)))

"""Complex numbers: what transforms take and give, with their arithmetic.

`dlc.numpy.fft`, `1j * x` and complex arguments make them. They have the operators + - * / @ ** (of whole exponents), == and !=,
the functions here, and whatever does the same to both parts (by_parts.py); for all else there are `.real` and `.imag`.
Derivatives are those of both parts, as if they were two arrays: the gradient of a real function is the direction in which it
grows fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from dlc.errors import DTypeError, UnsupportedError
from dlc.frontend.complex_numbers import Complex, is_complex, of_parts, parts_of
from dlc.frontend.trace import is_number
from dlc.numpy.apply import ArrayLike, convert, operand, promote_to_float, refuse
from dlc.numpy.functions import comparing as cmp
from dlc.numpy.functions import elementwise as ew
from dlc.numpy.functions import floats, linear, shaping
from dlc.numpy.functions.creation import ones_like, zeros_like

__all__ = ["abs", "angle", "conj", "exp", "imag", "log", "real", "sqrt"]

# A number, or an array, of real or complex numbers.
AnyNumbers: TypeAlias = "ArrayLike | Complex | complex"


def _parts(x: Any) -> tuple[Any, Any]:
    """The parts; None for the imaginary one of real numbers."""
    return parts_of(x) if is_complex(x) else (x, None)


def _made(real: Any, imag: Any) -> Any:
    """Complex numbers of parts that broadcast; of None there is 0."""
    parts = promote_to_float(real, 0.0 if imag is None else imag)
    if parts[0].dtype.itemsize < 4:
        parts = [convert(part, np.float32) for part in parts]
    return of_parts(*shaping.broadcast_arrays(*parts))


def _opposite(x: Any) -> Any:
    # A number that is none of NumPy's keeps taking the dtype of what it meets.
    return None if x is None else -x if is_number(x) else ew.negative(x)


def _sum(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else ew.add(x, y)


def _linear(x: AnyNumbers, y: AnyNumbers, sign: int = 1) -> Any:
    (a, b), (c, d) = _parts(x), _parts(y)
    return _made(*(_sum(p, q if sign > 0 else _opposite(q)) for p, q in ((a, c), (b, d))))


def _subtract(x: AnyNumbers, y: AnyNumbers) -> Any:
    return _linear(x, y, -1)


# (a + b·i)·(c + d·i) = (a·c - b·d) + (a·d + b·c)·i
def _product(multiply: Callable[..., Any]) -> Callable[..., Any]:
    def product(x: AnyNumbers, y: AnyNumbers) -> Any:
        (a, b), (c, d) = _parts(x), _parts(y)

        def of(p: Any, q: Any) -> Any:
            return None if p is None or q is None else multiply(p, q)

        return _made(_sum(of(a, c), _opposite(of(b, d))), _sum(of(a, d), of(b, c)))

    return product


_multiply = _product(ew.multiply)


def _divide(x: AnyNumbers, y: AnyNumbers) -> Any:
    """By Smith's method (Communications of the ACM 5, 1962), in which no square overflows."""
    (a, b), (c, d) = _parts(x), _parts(y)
    if d is None:
        return _made(ew.divide(a, c), None if b is None else ew.divide(b, c))
    a, b, c, d = promote_to_float(a, 0.0 if b is None else b, c, d)
    real_is_larger = cmp.greater_equal(ew.abs(c), ew.abs(d))
    p, q = ew.where(real_is_larger, c, d), ew.where(real_is_larger, d, c)
    r = ew.divide(q, p)
    scale = ew.add(p, ew.multiply(q, r))
    top = ew.where(real_is_larger, ew.add(a, ew.multiply(b, r)), ew.add(ew.multiply(a, r), b))
    side = ew.where(real_is_larger, ew.subtract(b, ew.multiply(a, r)), ew.subtract(ew.multiply(b, r), a))
    return _made(ew.divide(top, scale), ew.divide(side, scale))


def _power(x: AnyNumbers, n: Any) -> Any:
    if not isinstance(n, int):
        return refuse(UnsupportedError(f"a complex number to the power {n!r}; expected a whole number that is known"))
    if n < 0:
        return _divide(1.0, _power(x, -n))
    result: Any = None
    while n:
        result = (x if result is None else _multiply(result, x)) if n % 2 else result
        n //= 2
        x = _multiply(x, x) if n else x
    return _made(ones_like(_parts(x)[0]), None) if result is None else result


def _equal(x: AnyNumbers, y: AnyNumbers) -> Any:
    (a, b), (c, d) = ((p, 0.0 if q is None else q) for p, q in map(_parts, (x, y)))
    return cmp.logical_and(cmp.equal(a, c), cmp.equal(b, d))


def _not_equal(x: AnyNumbers, y: AnyNumbers) -> Any:
    return cmp.logical_not(_equal(x, y))


# What operators do where a complex number is among the operands, by what they do of real ones.
RULES: Mapping[Callable[..., Any], Callable[..., Any]] = {
    ew.add: _linear, ew.subtract: _subtract, ew.multiply: _multiply, ew.divide: _divide, ew.power: _power,
    linear.matmul: _product(linear.matmul), cmp.equal: _equal, cmp.not_equal: _not_equal,
}  # fmt: skip


def rule_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """What an operator does of complex numbers; raises DTypeError, when it is called, for one that has no such meaning."""

    def refused(*_: Any) -> Any:
        return refuse(DTypeError(f"{function.__name__} of complex numbers; use it on .real and .imag"))

    return RULES.get(function, refused)


def real(x: AnyNumbers, /) -> Any:
    """The real parts."""
    return operand(_parts(x)[0])


def imag(x: AnyNumbers, /) -> Any:
    """The imaginary parts; 0 for real numbers."""
    a, b = _parts(x)
    return zeros_like(a) if b is None else operand(b)


def conj(x: AnyNumbers, /) -> Any:
    """The numbers with opposite imaginary parts; real ones themselves."""
    a, b = _parts(x)
    return operand(a) if b is None else _made(a, _opposite(b))


def abs(x: AnyNumbers, /) -> Any:
    """|x|, of complex numbers too."""
    a, b = _parts(x)
    return ew.abs(a) if b is None else floats.hypot(a, b)


def angle(x: AnyNumbers, /) -> Any:
    """The angle of a complex number in radians, between -π and π; 0 or π for real ones."""
    a, b = _parts(x)
    return floats.atan2(imag(a) if b is None else b, a)


def exp(x: AnyNumbers, /) -> Any:
    """eˣ, of complex numbers too: e^a · (cos b + sin b · i)."""
    a, b = _parts(x)
    if b is None:
        return ew.exp(a)
    size = ew.exp(a)
    return _made(ew.multiply(size, ew.cos(b)), ew.multiply(size, ew.sin(b)))


def log(x: AnyNumbers, /) -> Any:
    """ln x; of complex numbers the logarithm of the size and, as imaginary part, the angle."""
    a, b = _parts(x)
    return ew.log(a) if b is None else _made(ew.log(floats.hypot(a, b)), floats.atan2(b, a))


def sqrt(x: AnyNumbers, /) -> Any:
    """√x; of complex numbers that of half the angle."""
    a, b = _parts(x)
    if b is None:
        return ew.sqrt(a)
    size, half = ew.sqrt(floats.hypot(a, b)), ew.multiply(floats.atan2(b, a), 0.5)
    return _made(ew.multiply(size, ew.cos(half)), ew.multiply(size, ew.sin(half)))

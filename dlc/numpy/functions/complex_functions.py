"""Elementary functions of complex arrays, from real functions of the two parts.

Results of infinite and undefined parts are those of C99, annex G. Derivatives at a branch cut are those of the side that the
signs of the parts select.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dlc.frontend.complex_numbers import from_parts, real_and_imaginary
from dlc.numpy.apply import promote_to_float
from dlc.numpy.functions import comparison as cmp
from dlc.numpy.functions import elementwise as ew
from dlc.numpy.functions import floats


def _parts(x: Any) -> list[Any]:
    return promote_to_float(*real_and_imaginary(x))


def _product(function: Callable[..., Any], x: Any, periodic: Callable[..., Any], angle: Any) -> Any:
    """Return function(x) · periodic(angle) of a hyperbolic function and sine or cosine.

    0 if either factor is 0; infinite for an infinite x and the cosine of an infinite or undefined angle.
    """
    factor, is_undefined = function(x), cmp.logical_not(cmp.isfinite(angle))
    product = ew.multiply(factor, periodic(angle))
    product = ew.where(cmp.logical_and(cmp.equal(factor, 0), is_undefined), factor, product)
    if periodic is ew.cos:
        return ew.where(cmp.logical_and(cmp.isinf(x), is_undefined), math.inf, product)
    return ew.where(cmp.logical_and(cmp.equal(angle, 0), cmp.logical_not(cmp.isfinite(factor))), angle, product)


def sinh(x: Any) -> Any:
    a, b = _parts(x)
    return from_parts(_product(ew.sinh, a, ew.cos, b), _product(ew.cosh, a, ew.sin, b))


def cosh(x: Any) -> Any:
    a, b = _parts(x)
    return from_parts(_product(ew.cosh, a, ew.cos, b), _product(ew.sinh, a, ew.sin, b))


def tanh(x: Any) -> Any:
    """(sinh 2a + i·sin 2b) / (cosh 2a + cos 2b) of a + b·i."""
    a, b = _parts(x)
    # Beyond this bound tanh is ±1, and cosh would overflow.
    bound = 40 if a.dtype == np.float32 else 350
    is_undefined = cmp.logical_not(cmp.isfinite(b))
    angle = ew.where(cmp.logical_and(cmp.isinf(a), is_undefined), 0, b)
    twice_a, twice_b = ew.multiply(ew.clip(a, -bound, bound), 2), ew.multiply(angle, 2)
    denominator = ew.add(ew.cosh(twice_a), ew.cos(twice_b))
    real = ew.where(cmp.logical_and(cmp.equal(a, 0), is_undefined), a, ew.divide(ew.sinh(twice_a), denominator))
    imag = ew.where(cmp.logical_and(cmp.isnan(a), cmp.equal(b, 0)), b, ew.divide(ew.sin(twice_b), denominator))
    return from_parts(real, imag)


def _of_rotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return -i·f(i·x)."""

    def rotated(x: Any) -> Any:
        a, b = _parts(x)
        real, imag = real_and_imaginary(function(from_parts(ew.negative(b), a)))
        return from_parts(imag, ew.negative(real))

    return rotated


def cos(x: Any) -> Any:
    a, b = _parts(x)
    return cosh(from_parts(ew.negative(b), a))


def expm1(x: Any) -> Any:
    a, b = _parts(x)
    versine = ew.multiply(ew.square(ew.sin(ew.multiply(b, 0.5))), 2)
    real = ew.subtract(ew.multiply(ew.expm1(a), ew.cos(b)), versine)
    # The limit of an infinite real part and an angle without direction; 0 also of -0.
    is_undirected = cmp.logical_and(cmp.isinf(a), cmp.logical_not(cmp.isfinite(b)))
    real = ew.where(is_undirected, ew.expm1(a), ew.where(cmp.equal(real, 0), 0, real))
    is_undefined = cmp.logical_and(cmp.isfinite(a), cmp.logical_not(cmp.isfinite(b)))
    return from_parts(real, ew.where(is_undefined, math.nan, _product(ew.exp, a, ew.sin, b)))


def log1p(x: Any) -> Any:
    a, b = _parts(x)
    is_small = cmp.less(ew.add(ew.abs(a), ew.abs(b)), 0.5)
    square = ew.add(ew.multiply(a, ew.add(a, 2)), ew.multiply(b, b))
    small = ew.multiply(ew.log1p(ew.where(is_small, square, 0)), 0.5)
    large = ew.log(floats.hypot(ew.where(is_small, 1, ew.add(a, 1)), b))
    return from_parts(ew.where(is_small, small, large), floats.atan2(b, ew.add(a, 1)))


def _with_sign(x: Any, negative: Any) -> Any:
    """Return -x where `negative` is true: `copysign` and `abs` have no derivative at 0."""
    return ew.where(negative, ew.negative(x), x)


def _inverse_sine_parts(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Return Re asin z, Re acos z and |Im asin z| of z = |a| + |b|·i.

    Algorithm: Hull, Fairgrieve and Tang, "Implementing the complex arcsine and arccosine functions using exception handling"
    (1997), without its cases for small arguments.
    """
    x, y = (_with_sign(v, cmp.signbit(v)) for v in (a, b))
    longer, shorter = cmp.maximum(x, y), cmp.minimum(x, y)
    is_large = cmp.greater(longer, math.sqrt(float(np.finfo(a.dtype).max)) / 8)
    u, v = (ew.where(is_large, 0.5, part) for part in (x, y))
    r, s = floats.hypot(ew.add(u, 1), v), floats.hypot(ew.subtract(u, 1), v)
    mean = ew.multiply(ew.add(r, s), 0.5)
    is_inside = cmp.less(u, 1)
    # With d = |1 - u|: mean - 1 = (v² / (r + u + 1) + v² / (s + d)) / 2 inside, and (v² / (r + u + 1) + s + d) / 2 outside.
    outer, inner = ew.add(ew.add(r, u), 1), ew.add(s, ew.where(is_inside, ew.subtract(1, u), ew.subtract(u, 1)))
    one = np.ones((), a.dtype)
    # At the branch points ±1 both are 0.
    inverse_inner = ew.divide(1, ew.where(cmp.equal(inner, 0), one, inner))
    curvature = ew.multiply(ew.add(ew.divide(1, outer), inverse_inner), 0.5)
    excess = ew.multiply(ew.add(ew.divide(ew.multiply(v, v), outer), inner), 0.5)
    # √(mean² - u²) and √(mean² - 1), of which one is proportional to v.
    proportional = ew.multiply(v, ew.sqrt(ew.multiply(curvature, ew.add(mean, ew.where(is_inside, 1, u)))))
    other = ew.sqrt(ew.multiply(excess, ew.add(mean, ew.where(is_inside, u, 1))))
    root = ew.where(is_inside, other, proportional)
    less_one = ew.where(is_inside, ew.multiply(ew.multiply(v, v), curvature), excess)
    imag = ew.log1p(ew.add(less_one, ew.where(is_inside, proportional, other)))
    # Large arguments: ln 2|z|.
    longer, shorter = (ew.where(is_large, part, one) for part in (longer, shorter))
    ratio = ew.divide(shorter, ew.where(cmp.isinf(longer), one, longer))
    size = ew.add(ew.log(longer), ew.add(ew.multiply(ew.log1p(ew.multiply(ratio, ratio)), 0.5), math.log(2)))
    imag = ew.where(is_large, size, imag)
    imag = ew.where(cmp.logical_or(cmp.isinf(x), cmp.isinf(y)), math.inf, imag)
    across = ew.where(is_large, y, root)
    # On the imaginary axis both real parts are defined, even if the imaginary part is NaN.
    across = ew.where(cmp.logical_and(cmp.equal(x, 0), cmp.isnan(y)), 1, across)
    return floats.atan2(x, across), floats.atan2(across, x), imag


def asin(x: Any) -> Any:
    a, b = _parts(x)
    real, _, imag = _inverse_sine_parts(a, b)
    return from_parts(_with_sign(real, cmp.signbit(a)), _with_sign(imag, cmp.signbit(b)))


def acos(x: Any) -> Any:
    a, b = _parts(x)
    _, real, imag = _inverse_sine_parts(a, b)
    real = ew.where(cmp.signbit(a), ew.subtract(math.pi, real), real)
    return from_parts(real, _with_sign(imag, cmp.logical_not(cmp.signbit(b))))


def asinh(x: Any) -> Any:
    """i·asin(-i·x), the parts of asin(b + a·i) exchanged."""
    a, b = _parts(x)
    real, imag = real_and_imaginary(asin(from_parts(b, a)))
    return from_parts(imag, real)


def acosh(x: Any) -> Any:
    """±i·acos x, with a real part of at least 0 and the imaginary sign of x."""
    _, b = _parts(x)
    real, imag = real_and_imaginary(acos(x))
    is_negative = cmp.signbit(b)
    return from_parts(_with_sign(imag, cmp.logical_not(is_negative)), _with_sign(real, is_negative))


def atanh(x: Any) -> Any:
    """(ln(1 + 4a / ((1 - a)² + b²)) / 4, atan2(2b, (1 - a)·(1 + a) - b²) / 2) for a ≥ 0; the function is odd."""
    a, b = _parts(x)
    is_left = cmp.signbit(a)
    a = _with_sign(a, is_left)
    longer = cmp.maximum(a, ew.abs(b))
    is_large = cmp.greater(longer, math.sqrt(float(np.finfo(a.dtype).max)) / 8)
    u, v = (ew.where(is_large, 0.5, part) for part in (a, b))
    distance = ew.add(ew.square(ew.subtract(1, u)), ew.square(v))
    # Near the pole the square of the distance underflows.
    is_near = cmp.less(distance, 1e-6)
    near = ew.log(floats.hypot(ew.where(is_near, ew.subtract(1, u), 1), v))
    near = ew.multiply(ew.subtract(ew.log(floats.hypot(ew.add(u, 1), v)), near), 0.5)
    ratio = ew.divide(ew.multiply(u, 4), ew.where(is_near, 1, distance))
    real = ew.where(is_near, near, ew.multiply(ew.log1p(ratio), 0.25))
    below = ew.subtract(ew.multiply(ew.subtract(1, u), ew.add(u, 1)), ew.square(v))
    imag = ew.multiply(floats.atan2(ew.multiply(v, 2), below), 0.5)
    # Far from the origin the real part is a / |z|², which is 0 for infinite parts.
    scale = ew.where(is_large, longer, 1)
    cosine, sine = (ew.where(cmp.isinf(part), 1, ew.divide(part, scale)) for part in (a, b))
    far = ew.divide(ew.divide(cosine, ew.add(ew.square(cosine), ew.square(sine))), scale)
    real = ew.where(is_large, far, real)
    is_axis_or_infinite = cmp.logical_and(cmp.isnan(b), cmp.logical_or(cmp.equal(a, 0), cmp.isinf(a)))
    is_infinite = cmp.logical_and(cmp.isnan(a), cmp.isinf(b))
    real = ew.where(cmp.logical_or(is_axis_or_infinite, is_infinite), 0, real)
    imag = ew.where(cmp.logical_or(is_large, is_infinite), _with_sign(np.full((), math.pi / 2, a.dtype), cmp.signbit(b)), imag)
    return from_parts(_with_sign(real, is_left), imag)


def sign(x: Any) -> Any:
    """Return x / |x|, or 0 for 0. If exactly one part is infinite, the other one counts as 0."""
    a, b = _parts(x)
    length = floats.hypot(a, b)
    divisor = ew.where(cmp.equal(length, 0), 1, length)
    is_infinite = cmp.not_equal(cmp.isinf(a), cmp.isinf(b))
    quotients = (ew.where(cmp.equal(length, 0), 0, ew.divide(p, divisor)) for p in (a, b))
    return from_parts(*(ew.where(is_infinite, _sign_of_infinity(p), q) for p, q in zip((a, b), quotients, strict=True)))


def _sign_of_infinity(x: Any) -> Any:
    return ew.where(cmp.isinf(x), ew.sign(x), 0)


COMPLEX_FUNCTIONS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    ew.sin: _of_rotated(sinh), ew.cos: cos, ew.tan: _of_rotated(tanh), ew.sinh: sinh, ew.cosh: cosh, ew.tanh: tanh,
    ew.asin: asin, ew.acos: acos, ew.atan: _of_rotated(atanh), ew.asinh: asinh, ew.acosh: acosh, ew.atanh: atanh,
    ew.expm1: expm1, ew.log1p: log1p, ew.sign: sign,
}  # fmt: skip

"""Special functions: with the names and the meanings that `scipy.special` gives them.

They take what functions of `dlc.numpy` take, give the dtype that those would, and have derivatives. Errors are a few units in
the last place unless a function says otherwise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.numpy.apply import ArrayLike, Axes, Operand, apply, axes_of, convert, in_wide_type, promote_to_float
from dlc.numpy.comparing import equal, greater, isinf, less, less_equal, logical_and, maximum
from dlc.numpy.elementwise import abs, divide, exp, floor, log, log1p, multiply, rint, sin, sqrt, square, tan, where
from dlc.numpy.floats import copysign
from dlc.numpy.rules import with_tangent

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfinv", "expit", "gammaln", "i0", "i0e", "i1", "i1e", "log_expit", "logit",
    "logsumexp", "ndtr", "xlog1py", "xlogy",
]  # fmt: skip


def _in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of operands of one float dtype that computes in float64, as cancellation costs digits, and rounds once."""

    @functools.wraps(function)
    def widened(*xs: Operand) -> Any:
        return convert(function(*(convert(x, np.float64) for x in xs)), xs[0].dtype)

    return widened


def _floats(*xs: ArrayLike) -> list[Operand]:
    return promote_to_float(*xs, least=np.float16)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial, by Horner's rule; the coefficient of the highest power comes first."""
    value: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


# The normal distribution


def erf(x: ArrayLike, /) -> Any:
    """2/√π · ∫₀ˣ e^(-t²) dt."""
    return apply(dl.ErfOp, *_floats(x))


def erfinv(x: ArrayLike, /) -> Any:
    """The number whose erf is x; ±inf at ±1, nan beyond."""
    return apply(dl.ErfinvOp, *_floats(x))


def erfc(x: ArrayLike, /) -> Any:
    """1 - erf(x), without cancellation where that is small."""
    return _erfc(*_floats(x))


# Chebyshev's coefficients of ln(e^(x²) erfc(x) / t) for t = 2 / (2 + x) from 0 to 1, computed with 40 digits; the form is that
# of Press et al., Numerical Recipes (3rd edition, 6.2.2).
_TAIL = (
    -0.6513268598908547171, 0.6419697923564902603, 0.01947647320418583631, -0.009561514786808631642, -0.0009465953444820368663,
    0.0003668394978527614519, 4.252332480690777164e-5, -2.027857811253424315e-5, -1.624290004647025513e-6,
    1.303655835580523202e-6, 1.562644172206614318e-8, -8.523809591492654253e-8, 6.529054439098851496e-9,
    5.059343495551468942e-9, -9.913641564930330867e-10, -2.273651222931835856e-10, 9.646791102015526802e-11,
    2.394038083039114745e-12, -6.886027526497553398e-12, 8.944879273090725717e-13, 3.130921399342958078e-13,
    -1.127082236136725237e-13, 3.810905255189232055e-16, 7.106097613609236988e-15, -1.523028201457104304e-15,
    -9.457494571291234e-17, 1.210237189224278992e-16, -2.816663087747176972e-17,
)  # fmt: skip


def _bell(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(exp(-square(operands[0])) * (-2 / math.sqrt(math.pi)), tangents[0])


@in_wide_type
@with_tangent(_bell)
def _erfc(x: Any) -> Any:
    z = abs(x)
    # Clenshaw's recurrence; single precision needs the first half.
    coefficients = _TAIL if x.dtype.itemsize >= 8 else _TAIL[:15]
    t = divide(2, z + 2)
    twice = 4 * t - 2
    last, before = coefficients[-1] + 0 * t, 0 * t
    for coefficient in reversed(coefficients[1:-1]):
        last, before = twice * last - before + coefficient, last
    # The square of a number rounded to sixteenths is exact, and what that leaves out is small.
    near = floor(z * 16) * (1 / 16)
    tail = t * exp(-square(near)) * exp((near - z) * (near + z) + (coefficients[0] + twice * last / 2 - before))
    tail = where(greater(z, 30), 0, tail)
    return where(less(x, 0), 2 - tail, tail)


def ndtr(x: ArrayLike, /) -> Any:
    """The probability of a normal number below x; errors are about x² units in the last place where that is small."""
    (x,) = _floats(x)
    return erfc(multiply(x, -math.sqrt(0.5))) * 0.5


# The gamma function


def gammaln(x: ArrayLike, /) -> Any:
    """ln |Γ(x)|, for every real x; inf at 0, -1, -2, …, and as SciPy has it -inf at -inf.

    Computed in float64, to a few units in the last place; near its roots below -2 to 4e-15, if that is larger.
    """
    return _gammaln(*_floats(x))


# Stirling's series: B(2n) / (2n (2n - 1)) for n from 8 down to 1, and B(2n) / 2n.
_STIRLING = (-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_SLOPES = (-3617 / 8160, 1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
# Where the series begins to hold.
_FAR = 9
# ln Γ(2 + t) / t around its root: (-1)^k (ζ(k) - 1) / k for k from 27 down to 2, and 1 - γ (Abramowitz and Stegun, 6.1.33).
_AT_TWO = (
    -2.7595228851242334e-10, 5.731367241678862e-10, -1.1921401405860912e-09, 2.4836745438024785e-09, -5.183475041970047e-09,
    1.0838659214896955e-08, -2.2711094608943164e-08, 4.7698101693639804e-08, -1.0043224823968099e-07, 2.1207184805554665e-07,
    -4.492469198764566e-07, 9.55141213040742e-07, -2.039215753801366e-06, 4.374866789907488e-06, -9.439488275268397e-06,
    2.050721277567069e-05, -4.492623673813314e-05, 9.945751278180853e-05, -0.00022315475845357939, 0.0005096695247430425,
    -0.001192753911703261, 0.0028905103307415234, -0.007385551028673986, 0.020580808427784546, -0.0673523010531981,
    0.3224670334241132, 0.42278433509846713,
)  # fmt: skip


def _moved(z: Any, way: int, where_not: Callable[[Any], Any], start: float, step: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """z moved up or down by ones from where it is not to be, and what `step` makes of `start` and each z that it leaves."""
    total: Any = start
    for _ in range(_FAR):
        on = where_not(z)
        total, z = where(on, step(total, z), total), where(on, z + way, z)
    return z, total


def _by_digamma(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(digamma(operands[0]), tangents[0])


@with_tangent(_by_digamma)
@_in_float64
def _gammaln(x: Any) -> Any:
    reflected = less(x, -0.5)
    z = where(reflected, 1 - x, x)
    # Near: ln Γ(2 + t), from which logarithms lead up, and down to Γ(1 + t) and Γ(t).
    low, product = _moved(z, -1, lambda z: greater(z, 2.5), 1.0, lambda product, z: product * (z - 1))
    below_one, below_two, near = less(low, 0.5), less(low, 1.5), less(z, _FAR)
    t = low - where(below_one, 0, where(below_two, 1, 2))
    logarithm = log(where(near, where(below_one, divide(1, abs(t)), product), z))
    value = logarithm + t * _polynomial(t, _AT_TWO) - where(below_two, log1p(t), 0)
    inverse = divide(1, z)
    series = 0.5 * math.log(2 * math.pi) + inverse * _polynomial(square(inverse), _STIRLING)
    value = where(near, value, (z - 0.5) * logarithm - z + series)
    # Γ(x) Γ(1 - x) = π / sin(πx), of which only the distance from the next whole number matters.
    value = where(reflected, log(divide(math.pi, abs(sin((x - rint(x)) * math.pi)))) - value, value)
    return where(isinf(x), x, value)


def digamma(x: ArrayLike, /) -> Any:
    """The derivative of ln Γ(x); ∓inf at ±0, nan at -1, -2, …

    Computed in float64, to a few units in the last place or, near its roots, 4e-15, whichever is larger.
    """
    return _digamma(*_floats(x))


@_in_float64
def _digamma(x: Any) -> Any:
    reflected = less(x, 0.5)
    z = where(reflected, 1 - x, x)
    z, total = _moved(z, 1, lambda z: less(z, _FAR), 0.0, lambda total, z: total + divide(1, z))
    inverse = divide(1, z)
    value = log(z) - inverse / 2 - square(inverse) * _polynomial(square(inverse), _SLOPES) - total
    distance = x - rint(x)
    pole = logical_and(reflected, equal(distance, 0))
    value = where(reflected, value - divide(math.pi, tan(where(pole, 0.25, distance) * math.pi)), value)
    return where(pole, where(equal(x, 0), copysign(math.inf, -x), math.nan), value)


# Bessel functions


def i0(x: ArrayLike, /) -> Any:
    """The modified Bessel function of order 0."""
    return _i0(*_floats(x))


def i0e(x: ArrayLike, /) -> Any:
    """e^-|x| · i0(x)."""
    return _i0e(*_floats(x))


def i1(x: ArrayLike, /) -> Any:
    """The modified Bessel function of order 1, which is the derivative of i0."""
    return _i1(*_floats(x))


def i1e(x: ArrayLike, /) -> Any:
    """e^-|x| · i1(x)."""
    return _i1e(*_floats(x))


# Up to here the series of powers, beyond it that of inverse powers (Abramowitz and Stegun, 9.6.10 and 9.7.1).
_LARGE = 25.0
_POWERS, _INVERSES = 48, 28


def _scaled_bessel(order: int, x: Any) -> Any:
    """e^-|x| · I(|x|)."""
    z = abs(x)
    small = less_equal(z, _LARGE)
    near, far = where(small, z, 0), where(small, _LARGE, z)
    quarter, total = square(near) / 4, 1.0
    for k in range(_POWERS, 0, -1):
        total = quarter * (total * (1 / (k * (k + order)))) + 1
    powers = (near / 2 if order else 1.0) * total * exp(-near)
    inverse, total = divide(1, far), 1.0
    for k in range(_INVERSES, 0, -1):
        total = inverse * (total * (((2 * k - 1) ** 2 - 4 * order) / (8 * k))) + 1
    return where(small, powers, total * sqrt(inverse) * (1 / math.sqrt(2 * math.pi)))


def _unscaled(scaled: Any, x: Any) -> Any:
    # In two steps: e^x overflows before the product does.
    half = exp(abs(x) / 2)
    return half * scaled * half


def _i0_slope(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(i1(operands[0]), tangents[0])


def _i0e_slope(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(i1e(x) - _sign(x) * result, tangents[0])


def _i1_slope(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(i0(x) - _over(result, x), tangents[0])


def _i1e_slope(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(i0e(x) - _sign(x) * result - _over(result, x), tangents[0])


def _sign(x: Any) -> Any:
    return where(less(x, 0), -1, where(greater(x, 0), 1, 0 * x))


def _over(result: Any, x: Any) -> Any:
    """i1(x) / x, which is 1/2 at 0."""
    none = equal(x, 0)
    return where(none, 0.5, divide(result, where(none, 1, x)))


@in_wide_type
@with_tangent(_i0_slope)
def _i0(x: Any) -> Any:
    return where(isinf(x), math.inf, _unscaled(_scaled_bessel(0, x), x))


@in_wide_type
@with_tangent(_i0e_slope)
def _i0e(x: Any) -> Any:
    return _scaled_bessel(0, x)


@in_wide_type
@with_tangent(_i1_slope)
def _i1(x: Any) -> Any:
    return copysign(where(isinf(x), math.inf, _unscaled(_scaled_bessel(1, x), x)), x)


@in_wide_type
@with_tangent(_i1e_slope)
def _i1e(x: Any) -> Any:
    return copysign(_scaled_bessel(1, x), x)


# Logarithms and probabilities


def expit(x: ArrayLike, /) -> Any:
    """1 / (1 + e^-x)."""
    return apply(dl.SigmoidOp, *_floats(x))


def log_expit(x: ArrayLike, /) -> Any:
    """ln(expit(x)), without overflow."""
    return _log_expit(*_floats(x))


@in_wide_type
def _log_expit(x: Any) -> Any:
    return -(maximum(-x, 0) + log1p(exp(-abs(x))))


def logit(x: ArrayLike, /) -> Any:
    """ln(x / (1 - x)), the inverse of expit."""
    (x,) = _floats(x)
    return _logit(x)


@in_wide_type
def _logit(x: Any) -> Any:
    # Around 1/2, where the result is near 0, from the distance to it, which is exact.
    central = less(abs(x - 0.5), 0.25)
    twice = where(central, 2 * x - 1, 0)
    return where(central, log1p(twice) - log1p(-twice), log(x) - log1p(-x))


def xlogy(x: ArrayLike, y: ArrayLike, /) -> Any:
    """x · ln(y), 0 where x is 0."""
    x, y = _floats(x, y)
    return _product(x, log, y)


def xlog1py(x: ArrayLike, y: ArrayLike, /) -> Any:
    """x · ln(1 + y), 0 where x is 0."""
    x, y = _floats(x, y)
    return _product(x, log1p, y)


def _product(x: Any, function: Callable[[Any], Any], y: Any) -> Any:
    # A nan in y goes on, as it does in SciPy.
    none = logical_and(equal(x, 0), equal(y, y))
    return where(none, 0, x * function(where(none, 1, y)))


def entr(x: ArrayLike, /) -> Any:
    """-x · ln(x); 0 at 0, -inf below."""
    (x,) = _floats(x)
    below = less(x, 0)
    return where(below, -math.inf, -xlogy(x, where(below, 1, x)))


def logsumexp(x: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Any:
    """ln(Σ e^x) along `axis`, without overflow; all axes for None."""
    (x,) = _floats(x)
    return apply(dl.ReduceLogSumExpOp, x, axes=axes_of("logsumexp", x, axis), keepdims=keepdims)

"""Bessel functions of the first and the second kind, of orders 0 and 1, computed in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dlc.numpy.apply import ArrayLike, Operand
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions.comparison import equal, isinf, less, less_equal
from dlc.numpy.functions.elementwise import abs, cos, divide, log, multiply, sin, sqrt, square, where
from dlc.special.evaluation import in_float64, polynomial, promote_floats

__all__ = ["j0", "j1", "y0", "y1"]


def j0(x: ArrayLike, /) -> Any:
    """Return the Bessel function of the first kind of order 0."""
    return _j0(*promote_floats(x))


def j1(x: ArrayLike, /) -> Any:
    """Return the Bessel function of the first kind of order 1."""
    return _j1(*promote_floats(x))


def y0(x: ArrayLike, /) -> Any:
    """Return the Bessel function of the second kind of order 0: -inf at 0, NaN for x < 0."""
    return _y0(*promote_floats(x))


def y1(x: ArrayLike, /) -> Any:
    """Return the Bessel function of the second kind of order 1: -inf at 0, NaN for x < 0."""
    return _y1(*promote_floats(x))


# Coefficients of the highest power come first: Chebyshev expansions, computed with 45 digits and converted to powers of u.
# For x ≤ _MAX_SERIES_ARGUMENT, u = 2 (x / 8)² - 1: _SERIES_J0 is J0(x), _SERIES_J1 is J1(x) / x, _SERIES_Y0 is
# Y0(x) - 2/π ln(x) J0(x), _SERIES_Y1 is (Y1(x) - 2/π (ln(x) J1(x) - 1/x)) / x. For larger x, u = 2 (8 / x)² - 1: the amplitudes
# P and x Q of Hankel's asymptotic expansion (Abramowitz and Stegun, 9.2.5 and 9.2.6).
_MAX_SERIES_ARGUMENT = 8.0
_SERIES_J0 = (
    4.0037632815796753e-13, -1.243301171273326e-11, 3.3634475788173604e-10, -7.91532308295207e-09, 1.5956109104549218e-07,
    -2.717749223632098e-06, 3.8473197855944365e-05, -0.0004435459224311503, 0.004058078989140991, -0.028472718610882047,
    0.14598884856759264, -0.5074680458471, 1.0383794611437211, -0.8080888076696872, -0.6484692830871837, 0.9303012472958572,
    0.04582966485981377,
)  # fmt: skip
_SERIES_J1 = (
    1.2095547964761484e-14, -4.0045728425886457e-13, 1.1610590175819576e-11, -2.943013798001659e-10, 6.4312687983276065e-09,
    -1.196708186787801e-07, 1.8684525371950874e-06, -2.404574865968694e-05, 0.0002494945813909099, -0.0020290394945705996,
    0.012456814392255438, -0.05474581821284722, 0.15858376432721938, -0.2595948652859303, 0.15151665143806634,
    0.08105866038589796, -0.05814382795599107,
)  # fmt: skip
_SERIES_Y0 = (
    2.558039436392922e-14, -8.840112096073101e-13, 2.681822137847736e-11, -7.13046146536789e-10, 1.6391065268260488e-08,
    -3.2185078445935923e-07, 5.321318633735116e-06, -7.279541882454115e-05, 0.0008061586060550644, -0.00702574105727097,
    0.0463670476813471, -0.21895747096171628, 0.6721770783431723, -1.0775477338215995, 0.14412632369302442,
    1.6470964788745466, -0.8284358903604587, -0.382250654459425,
)  # fmt: skip
_SERIES_Y1 = (
    -2.695138958384033e-14, 8.760001143977853e-13, -2.4887509903377128e-11, 6.169688029066965e-10, -1.3153322551127247e-08,
    2.3804930420514178e-07, -3.600999874357815e-06, 4.467433012646365e-05, -0.00044381734351149876, 0.0034224907399188495,
    -0.019628756833099423, 0.07854786922242532, -0.19639839859930425, 0.23507209206669755, 0.023367571720993584,
    -0.24337743079193114, 0.07075985882118005,
)  # fmt: skip
_P0 = (
    -1.180002783020184e-14, 3.339452259070809e-14, -6.416781008015415e-14, 2.4531772967345006e-13, -1.0636861151667625e-12,
    4.786995821368028e-12, -2.4882702786880542e-11, 1.5500565496632596e-10, -1.2121182069774233e-09, 1.280376144080092e-08,
    -2.0527448156307146e-07, 6.137416080109497e-06, -0.0005363673192130047, 0.9994572757882519,
)  # fmt: skip
_Q0 = (
    -7.657652788302387e-15, 1.7159223662634758e-14, -9.94348527082079e-15, 3.750385225206321e-14, -1.8114989811223087e-13,
    5.570266801419967e-13, -1.8315236532076327e-12, 6.878054876576861e-12, -2.8726953457199988e-11, 1.36265138876175e-10,
    -7.576280245550776e-10, 5.146225268539058e-09, -4.534972900180117e-08, 5.68497188761875e-07, -1.1817110661171062e-05,
    0.0005466519279475109, -0.12444091103610815,
)  # fmt: skip
_P1 = (
    1.2489929194563941e-14, -3.5455617466606254e-14, 6.864486664846182e-14, -2.6335760672461096e-13, 1.1462229852806783e-12,
    -5.191158004646548e-12, 2.720406848040165e-11, -1.713107485294131e-10, 1.3603058049468316e-09, -1.4708512991275258e-08,
    2.4536766222672443e-07, -7.9596946984383e-06, 0.0008988049416705579, 1.0009070262780821,
)  # fmt: skip
_Q1 = (
    -1.804307200062192e-14, 4.275621822194818e-14, -3.9930634717453954e-14, 1.3996264453471973e-13, -5.930663429711533e-13,
    2.002728774766585e-12, -7.387575652695623e-12, 3.100364837230575e-11, -1.4819760550541304e-10, 8.316077350038262e-10,
    -5.720884228409981e-09, 5.136105997071193e-08, -6.63356856721788e-07, 1.4569614809851411e-05, -0.0007697167057643541,
    0.3742149922195918,
)  # fmt: skip


def _small_and_large(x: Any) -> tuple[Any, Any, Any]:
    """Return whether x is small, x where it is, and x elsewhere."""
    is_small = less_equal(x, _MAX_SERIES_ARGUMENT)
    return is_small, where(is_small, x, 1.0), where(is_small, _MAX_SERIES_ARGUMENT, x)


def _series(x: Any, coefficients: Sequence[float]) -> Any:
    return polynomial(square(x) * (2 / _MAX_SERIES_ARGUMENT**2) - 1, coefficients)


def _asymptotic(order: int, kind: Callable[[Any, Any, Any, Any], Any], x: Any) -> Any:
    """Return √(2/πx) times a combination of P, Q and the cosine and sine of the phase x - (order/2 + 1/4) π."""
    is_infinite = isinf(x)
    x = where(is_infinite, _MAX_SERIES_ARGUMENT, x)
    u = square(_MAX_SERIES_ARGUMENT / x) * 2 - 1
    p, q = (polynomial(u, coefficients) for coefficients in ((_P1, _Q1) if order else (_P0, _Q0)))
    # The phase without a subtraction, which would cancel: cos(x - π/4) = (cos x + sin x) / √2, and so on.
    c, s = cos(x), sin(x)
    cosine, sine = ((s - c), -(c + s)) if order else ((c + s), (s - c))
    value = kind(p, q / x, cosine, sine) * sqrt(divide(1 / math.pi, x))
    return where(is_infinite, 0.0, value)


def _first_kind(p: Any, q: Any, cosine: Any, sine: Any) -> Any:
    return p * cosine - q * sine


def _second_kind(p: Any, q: Any, cosine: Any, sine: Any) -> Any:
    return p * sine + q * cosine


def _with_domain(x: Any, value: Any) -> Any:
    """Return the value, -inf at 0 and NaN for negative x."""
    return where(less(x, 0), math.nan, where(equal(x, 0), -math.inf, value))


def _over_x(result: Any, x: Any) -> Any:
    """Return j1(x) / x; 1/2 at 0."""
    is_zero = equal(x, 0)
    return where(is_zero, 0.5, divide(result, where(is_zero, 1, x)))


def _j0_tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(-j1(operands[0]), tangents[0])


def _j1_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(j0(x) - _over_x(result, x), tangents[0])


def _y0_tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(-y1(operands[0]), tangents[0])


def _y1_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(y0(x) - divide(result, x), tangents[0])


@in_float64
@with_jvp_rule(_j0_tangent)
def _j0(x: Any) -> Any:
    is_small, small, large = _small_and_large(abs(x))
    return where(is_small, _series(small, _SERIES_J0), _asymptotic(0, _first_kind, large))


@in_float64
@with_jvp_rule(_j1_tangent)
def _j1(x: Any) -> Any:
    is_small, small, large = _small_and_large(abs(x))
    value = where(is_small, small * _series(small, _SERIES_J1), _asymptotic(1, _first_kind, large))
    return where(less(x, 0), -value, value)


@in_float64
@with_jvp_rule(_y0_tangent)
def _y0(x: Any) -> Any:
    is_small, small, large = _small_and_large(x)
    small = where(less_equal(small, 0), 1.0, small)
    series_value = _series(small, _SERIES_Y0) + 2 / math.pi * log(small) * _series(small, _SERIES_J0)
    return _with_domain(x, where(is_small, series_value, _asymptotic(0, _second_kind, large)))


@in_float64
@with_jvp_rule(_y1_tangent)
def _y1(x: Any) -> Any:
    is_small, small, large = _small_and_large(x)
    small = where(less_equal(small, 0), 1.0, small)
    logarithm = log(small) * small * _series(small, _SERIES_J1)
    series_value = small * _series(small, _SERIES_Y1) + 2 / math.pi * (logarithm - divide(1, small))
    return _with_domain(x, where(is_small, series_value, _asymptotic(1, _second_kind, large)))

"""Modified Bessel functions of the first kind, of orders 0 and 1, computed in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.numpy.apply import ArrayLike, Operand
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions.comparison import equal, greater, isinf, less, less_equal
from dlc.numpy.functions.elementwise import abs, divide, exp, multiply, sqrt, square, where
from dlc.numpy.functions.floats import copysign
from dlc.special.evaluation import in_float64, polynomial, promote_floats

__all__ = ["i0", "i0e", "i1", "i1e"]


def i0(x: ArrayLike, /) -> Any:
    """Return the modified Bessel function of order 0."""
    return _i0(*promote_floats(x))


def i0e(x: ArrayLike, /) -> Any:
    """Return e^-|x| · i0(x)."""
    return _i0e(*promote_floats(x))


def i1(x: ArrayLike, /) -> Any:
    """Return the modified Bessel function of order 1, the derivative of i0."""
    return _i1(*promote_floats(x))


def i1e(x: ArrayLike, /) -> Any:
    """Return e^-|x| · i1(x)."""
    return _i1e(*promote_floats(x))


# _SERIES: the power series of I0(z) and I1(z) / z in (z / 2)², for z ≤ _MAX_SERIES_ARGUMENT. _ASYMPTOTIC: √z e^-z I(z) for
# z = 16 / (1 + u), as in Cephes (Moshier, Methods and Programs for Mathematical Functions): a Chebyshev expansion, computed
# with 45 digits and converted to powers of u. Coefficients of the highest power come first.
_MAX_SERIES_ARGUMENT = 8.0
_SERIES_0 = (
    3.8310002187098785e-40, 1.6894710964510564e-37, 6.757884385804225e-35, 2.4395962632753253e-32, 7.904291893012054e-30,
    2.2843403570804838e-27, 5.8479113141260385e-25, 1.3157800456783586e-22, 2.5789288895295828e-20, 4.358389823304995e-18,
    6.276081345559193e-16, 7.594058428126623e-14, 7.594058428126624e-12, 6.151187326782565e-10, 3.936759889140842e-08,
    1.9290123456790124e-06, 6.944444444444444e-05, 0.001736111111111111, 0.027777777777777776, 0.25, 1.0, 1.0,
)  # fmt: skip
_ASYMPTOTIC_0 = (
    9.36508689281819e-11, 3.629355229718733e-11, -6.633287112547084e-10, -2.8033819978869995e-10, 2.1968921378829006e-09,
    1.1050558794424347e-09, -4.575553424534973e-09, -3.1346276429240787e-09, 6.560138746917057e-09, 7.3359687108161536e-09,
    -5.0381064879032845e-09, -1.3326094405766387e-08, -6.8493381882867694e-09, 7.534355843803342e-09, 2.1566251453104354e-08,
    3.932889375114634e-08, 8.872034383314144e-08, 2.973596046562712e-07, 1.4838476651250266e-06, 1.1143033800708978e-05,
    0.00013621607438984735, 0.0033605519836677504, 0.4021765094450081,
)  # fmt: skip
_SERIES_1 = (
    8.706818678886087e-42, 4.022550229645372e-39, 1.6894710964510563e-36, 6.419990166514014e-34, 2.195636636947793e-31,
    6.718648109060246e-29, 1.827472285664387e-26, 4.385933485594529e-24, 9.21046031974851e-22, 1.676303778194229e-19,
    2.615033893982997e-17, 3.451844740057556e-15, 3.7970292140633116e-13, 3.417326292656981e-11, 2.460474930713026e-09,
    1.3778659611992944e-07, 5.787037037037037e-06, 0.00017361111111111112, 0.003472222222222222, 0.041666666666666664, 0.25,
    0.5,
)  # fmt: skip
_ASYMPTOTIC_1 = (
    -9.752397204138195e-11, -3.365431853180176e-11, 6.917089294193807e-10, 2.6340771095136483e-10, -2.297004161885201e-09,
    -1.0594544160443166e-09, 4.810597405089944e-09, 3.086886736722725e-09, -6.983839624895866e-09, -7.44444147719727e-09,
    5.59337010179061e-09, 1.3958551001385955e-08, 6.8401389977069586e-09, -8.409182040442918e-09, -2.339250374801858e-08,
    -4.313196489977733e-08, -1.000109565963654e-07, -3.4838534380376333e-07, -1.8349102358955385e-06, -1.5038547209501858e-05,
    -0.0002192357638317243, -0.009749577193235635, 0.38939845902587233,
)  # fmt: skip


def _series_and_asymptotic(order: int, x: Any) -> tuple[Any, Any, Any]:
    """Return whether |x| is small, I(|x|) for small |x|, and e^-|x| · I(|x|) for large |x|."""
    z = abs(x)
    is_small = less_equal(z, _MAX_SERIES_ARGUMENT)
    series_value = polynomial(square(where(is_small, z, 0) * 0.5), _SERIES_1 if order else _SERIES_0)
    inverse = divide(1, where(is_small, _MAX_SERIES_ARGUMENT, z))
    asymptotic_value = polynomial(inverse * 16 - 1, _ASYMPTOTIC_1 if order else _ASYMPTOTIC_0) * sqrt(inverse)
    return is_small, z * series_value if order else series_value, asymptotic_value


def _bessel(order: int, x: Any) -> Any:
    """Return I(|x|)."""
    is_small, series_value, asymptotic_value = _series_and_asymptotic(order, x)
    # Multiply by e^(x/2) twice: e^x overflows before the product does.
    exp_half = exp(abs(x) / 2)
    return where(isinf(x), math.inf, where(is_small, series_value, exp_half * asymptotic_value * exp_half))


def _scaled_bessel(order: int, x: Any) -> Any:
    """Return e^-|x| · I(|x|)."""
    is_small, series_value, asymptotic_value = _series_and_asymptotic(order, x)
    return where(is_small, series_value * exp(-abs(x)), asymptotic_value)


def _i0_tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(i1(operands[0]), tangents[0])


def _i0e_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(i1e(x) - _sign(x) * result, tangents[0])


def _i1_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(i0(x) - _i1_over_x(result, x), tangents[0])


def _i1e_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(i0e(x) - _sign(x) * result - _i1_over_x(result, x), tangents[0])


def _sign(x: Any) -> Any:
    return where(less(x, 0), -1, where(greater(x, 0), 1, 0 * x))


def _i1_over_x(result: Any, x: Any) -> Any:
    """Return i1(x) / x; 1/2 at 0."""
    is_zero = equal(x, 0)
    return where(is_zero, 0.5, divide(result, where(is_zero, 1, x)))


@in_float64
@with_jvp_rule(_i0_tangent)
def _i0(x: Any) -> Any:
    return _bessel(0, x)


@in_float64
@with_jvp_rule(_i0e_tangent)
def _i0e(x: Any) -> Any:
    return _scaled_bessel(0, x)


@in_float64
@with_jvp_rule(_i1_tangent)
def _i1(x: Any) -> Any:
    return copysign(_bessel(1, x), x)


@in_float64
@with_jvp_rule(_i1e_tangent)
def _i1e(x: Any) -> Any:
    return copysign(_scaled_bessel(1, x), x)

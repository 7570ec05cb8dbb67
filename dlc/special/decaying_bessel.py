"""Modified Bessel functions of the second kind, of orders 0 and 1, computed in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.numpy.apply import ArrayLike, Operand
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions.comparison import equal, less, less_equal
from dlc.numpy.functions.elementwise import divide, exp, log, multiply, sqrt, square, where
from dlc.special.bessel import i0, i1
from dlc.special.evaluation import in_float64, polynomial, promote_floats

__all__ = ["k0", "k0e", "k1", "k1e"]


def k0(x: ArrayLike, /) -> Any:
    """Return the modified Bessel function of the second kind of order 0: inf at 0, NaN for x < 0."""
    return _k0(*promote_floats(x))


def k0e(x: ArrayLike, /) -> Any:
    """Return e^x · k0(x)."""
    return _k0e(*promote_floats(x))


def k1(x: ArrayLike, /) -> Any:
    """Return the modified Bessel function of the second kind of order 1: inf at 0, NaN for x < 0."""
    return _k1(*promote_floats(x))


def k1e(x: ArrayLike, /) -> Any:
    """Return e^x · k1(x)."""
    return _k1e(*promote_floats(x))


# Coefficients of the highest power come first: Chebyshev expansions, computed with 45 digits and converted to powers of u.
# For x ≤ _MAX_SERIES_ARGUMENT, u = x² / 2 - 1: _SERIES_K0 is K0(x) + ln(x / 2) I0(x), _SERIES_K1 is
# x (K1(x) - ln(x / 2) I1(x)). For larger x, u = 4 / x - 1: _ASYMPTOTIC is √x e^x K(x).
_MAX_SERIES_ARGUMENT = 2.0
_SERIES_K0 = (
    1.8282990225962873e-16, 3.518631515854722e-14, 5.452107588016936e-12, 6.623013272794453e-10, 6.093361934166155e-08,
    4.054506619949891e-06, 0.00018280555827901256, 0.005053392643196092, 0.07177701034240512, 0.3404973210133806,
    -0.30362077291575545,
)  # fmt: skip
_SERIES_K1 = (
    -3.5962181014457795e-15, -6.214271617329577e-13, -8.53273511404978e-11, -9.032127501740678e-09, -7.081133770184678e-07,
    -3.891869064371633e-05, -0.0013831688466153064, -0.02785423521977184, -0.24383852886774365, -0.3322409552403131,
    0.8850882877295894,
)  # fmt: skip
_ASYMPTOTIC_K0 = (
    -2.907778759714522e-11, 4.4463261136368365e-11, 1.126316337254519e-10, -1.5750973144552285e-10, -2.7839866456683264e-10,
    3.883027499295913e-10, 2.4099061000287124e-10, -2.426111314423373e-10, -6.304229346998433e-10, 1.0573777917720047e-09,
    -1.3806246402870368e-09, 3.170629957994259e-09, -7.539817679119423e-09, 1.731622598181986e-08, -4.126078580596855e-08,
    1.0287980689458582e-07, -2.6892248671184386e-07, 7.427932208028755e-07, -2.1911758052676744e-06, 7.002244287487694e-06,
    -2.473520470025926e-05, 9.956054749305854e-05, -0.00047976905676172516, 0.003032891810273794, -0.03107146182488956,
    1.2185953385133905,
)  # fmt: skip
_ASYMPTOTIC_K1 = (
    3.150534991423443e-11, -4.829107281627596e-11, -1.216604821004258e-10, 1.704297529665342e-10, 3.015605420609579e-10,
    -4.2190635517826636e-10, -2.5722618233906385e-10, 2.560533082941635e-10, 6.970364983934073e-10, -1.180097808498307e-09,
    1.5795148419022103e-09, -3.639264909950171e-09, 8.683982534096674e-09, -2.0109398585523846e-08, 4.837695851929297e-08,
    -1.2195093824501613e-07, 3.229983779937386e-07, -9.067229884830243e-07, 2.7300392852920254e-06, -8.961205912549711e-06,
    3.2843865708633974e-05, -0.00013959021964175084, 0.0007357241549032677, -0.005566729880072931, 0.10334973775386527,
    1.363151890371342,
)  # fmt: skip


def _bessel(order: int, x: Any, scaled: bool) -> Any:
    """Return K(x), or e^x · K(x) if `scaled`."""
    is_small = less_equal(x, _MAX_SERIES_ARGUMENT)
    small = where(is_small, where(less_equal(x, 0), 1.0, x), 1.0)
    large = where(is_small, _MAX_SERIES_ARGUMENT, x)
    rest = polynomial(square(small) * 0.5 - 1, _SERIES_K1 if order else _SERIES_K0)
    logarithm = log(small * 0.5)
    series_value = divide(rest, small) + logarithm * i1(small) if order else rest - logarithm * i0(small)
    asymptotic_value = polynomial(divide(4, large) - 1, _ASYMPTOTIC_K1 if order else _ASYMPTOTIC_K0) * sqrt(divide(1, large))
    if scaled:
        series_value = series_value * exp(small)
    else:
        asymptotic_value = asymptotic_value * exp(-large)
    value = where(is_small, series_value, asymptotic_value)
    return where(less(x, 0), math.nan, where(equal(x, 0), math.inf, value))


def _k0_tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(-k1(operands[0]), tangents[0])


def _k0e_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(result - k1e(operands[0]), tangents[0])


def _k1_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(-k0(x) - divide(result, x), tangents[0])


def _k1e_tangent(result: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    (x,) = operands
    return multiply(result - k0e(x) - divide(result, x), tangents[0])


@in_float64
@with_jvp_rule(_k0_tangent)
def _k0(x: Any) -> Any:
    return _bessel(0, x, False)


@in_float64
@with_jvp_rule(_k0e_tangent)
def _k0e(x: Any) -> Any:
    return _bessel(0, x, True)


@in_float64
@with_jvp_rule(_k1_tangent)
def _k1(x: Any) -> Any:
    return _bessel(1, x, False)


@in_float64
@with_jvp_rule(_k1e_tangent)
def _k1e(x: Any) -> Any:
    return _bessel(1, x, True)

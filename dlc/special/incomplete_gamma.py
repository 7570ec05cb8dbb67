"""Regularized incomplete gamma functions, computed in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dlc.lax import while_loop
from dlc.numpy.apply import ArrayLike, Operand
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions.comparison import (
    equal,
    greater,
    isinf,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
)
from dlc.numpy.functions.elementwise import abs, divide, exp, expm1, log, multiply, sqrt, square, where
from dlc.numpy.functions.reductions import any
from dlc.special.continued_fractions import SMALLEST_FACTOR, has_not_converged, nonzero
from dlc.special.error_functions import erfc
from dlc.special.evaluation import in_float64, log1p_deficit_ratio, polynomial, promote_floats
from dlc.special.gamma import digamma, gammaln, gammaln_of_one_plus, stirling_correction
from dlc.traced_functions.derivatives import directional_derivative

__all__ = ["gammainc", "gammaincc"]


def gammainc(a: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the regularized lower incomplete gamma function P(a, x) = 1 / Γ(a) ∫ t^(a-1) e^-t dt over t from 0 to x.

    nan for negative arguments. Computed in float64; the relative error is up to 1e-13, or 1e-15·a where P(a, x) is close to 0.
    Differentiable with respect to both arguments; the derivative with respect to `a` has no derivative in reverse mode.
    """
    return _gammainc(*promote_floats(a, x))


def gammaincc(a: ArrayLike, x: ArrayLike, /) -> Any:
    """Return the regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x); see `gammainc`."""
    return _gammaincc(*promote_floats(a, x))


# Four methods, as in Cephes (Moshier) and Boost: the power series of P, the series of Q for x near 0, the continued fraction
# of Q, and Temme's uniform asymptotic expansion (DLMF 8.12) around x = a for large a.
_MIN_TEMME_ARGUMENT, _MAX_TEMME_DEVIATION = 20.0, 0.3
_MAX_SMALL_ARGUMENT = 1.1
_NUM_SMALL_ARGUMENT_TERMS = 20
# Relative size of the last term of the series.
_LAST_TERM_RATIO = 2.0**-54
# c_k(η) of DLMF 8.12.9 as polynomials of η, computed with rational numbers; coefficients of the highest power come first.
# Terms are kept that contribute more than 2e-18 for a ≥ _MIN_TEMME_ARGUMENT.
_TEMME = (
    (-5.830772132550426e-11, -2.5514193994946248e-11, 9.14769958223679e-10, -4.382036018453353e-09, 1.0261809784240309e-08,
     6.707853543401498e-09, -1.7665952736826078e-07, 8.296711340953087e-07, -1.85406221071516e-06, -2.185448510679992e-06,
     3.919263178522438e-05, -0.0001787551440329218, 0.0003527336860670194, 0.0011574074074074073, -0.014814814814814815,
     0.08333333333333333, -0.3333333333333333),
    (4.162792991842583e-10, -1.0091543710600413e-09, -1.7543241719747647e-11, 1.1951628599778148e-08,
     -5.752545603517705e-08, 1.378633446915721e-07, 4.647127802807434e-09, -1.6120900894563446e-06, 7.64916091608111e-06,
     -1.8098550334489977e-05, -4.018775720164609e-07, 0.00020576131687242798, -0.0009902263374485596, 0.0026455026455026454,
     -0.003472222222222222, -0.001851851851851852),
    (-1.3670488396617114e-09, 6.228974084922022e-09, -1.409252991086752e-08, -2.0477098421990866e-10,
     1.4280614206064242e-07, -6.298992138380055e-07, 1.3721957309062934e-06, 3.423578734096138e-08, -1.2760635188618728e-05,
     5.2923448829120125e-05, -0.0001073665322636516, 2.0093878600823047e-06, 0.0007716049382716049, -0.0026813271604938273,
     0.004133597883597883),
    (-1.9111168485973655e-08, 8.099464905388083e-08, -1.6958404091930278e-07, -2.7861080291528143e-11,
     1.4230900732435883e-06, -5.6749528269915965e-06, 1.1082654115347302e-05, -2.396505113867297e-07,
     -7.561801671883977e-05, 0.00026772063206283885, -0.0004691894943952557, 0.00022947209362139917, 0.0006494341563786008),
    (-2.292934834000805e-07, 8.907507532205309e-07, -1.6954149536558305e-06, 2.507497226237533e-10, 1.1375726970678419e-05,
     -3.968365047179435e-05, 6.641498215465122e-05, -1.4638452578843418e-06, -0.0002990724803031902, 0.0007840392217200666,
     -0.0008618882909167117),
    (3.4652846491085265e-07, -3.252473551298454e-10, -2.291481176508095e-06, 8.018470256334202e-06, -1.3594048189768693e-05,
     1.419062920643967e-07, 6.797780477937208e-05, -0.00019932570516188847, 0.0002772753244959392, -6.972813758365857e-05,
     -0.00033679855336635813),
    (-2.0291327396058603e-06, 3.465155368803609e-06, -3.0796134506033047e-09, -1.8329116582843375e-05, 5.61168275310625e-05,
     -8.153969367561969e-05, 7.902353232660328e-07, 0.0002708782096718045, -0.0005921664373536939, 0.0005313079364639922),
    (-1.8263488805711332e-05, 2.7744451511563645e-05, -1.2741009095484485e-07, -0.00010976582244684731,
     0.0002812695154763237, -0.00033493161081142234, 5.171790908260592e-05, 0.00034436760689237765),
    (4.629953263691304e-05, -0.00012783517679769218, 0.00016644846642067547, -6.969091458420552e-07, -0.000438297098541721,
     0.0008394987206720873, -0.0006526239185953094),
    (0.00027750107634328704, -0.0006401475260262758, 0.0006782308837667328, -7.204895416020011e-05, -0.0005967612901927463),
    (0.0011089369134596636, -0.0019144384985654776, 0.0013324454494800656),
    (0.001579727660730835,),
)  # fmt: skip


def _tangent(index: int) -> Callable[[Operand, Sequence[Operand], Sequence[Operand]], Any]:
    """Return the JVP rule of P (index 0) or Q (index 1)."""

    def rule(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
        (a, x), (a_tangent, x_tangent) = operands, tangents
        slope = directional_derivative(lambda a: _regularized(a, x)[index], a)
        density = multiply(gamma_density(a, x), x_tangent)
        return multiply(slope, a_tangent) + (density if index == 0 else -density)

    return rule


@in_float64
@with_jvp_rule(_tangent(0))
def _gammainc(a: Any, x: Any) -> Any:
    return _regularized(a, x)[0]


@in_float64
@with_jvp_rule(_tangent(1))
def _gammaincc(a: Any, x: Any) -> Any:
    return _regularized(a, x)[1]


def gamma_density(a: Any, x: Any) -> Any:
    """Return x^(a-1) e^-x / Γ(a), the derivative of P with respect to x, for float64."""
    is_zero = equal(x, 0)
    at_zero = where(less(a, 1), math.inf, where(equal(a, 1), 1.0, 0.0))
    return where(is_zero, at_zero, divide(_power_times_exp(a, where(is_zero, 1.0, x)), x))


def _power_times_exp(a: Any, x: Any) -> Any:
    """Return x^a e^-x / Γ(a)."""
    is_large = greater(a, _MIN_TEMME_ARGUMENT)
    large = where(is_large, a, _MIN_TEMME_ARGUMENT)
    deviation = divide(x - large, large)
    scaled = exp(large * (log(divide(x, large)) - deviation) - stirling_correction(large)) * sqrt(large / (2 * math.pi))
    small = where(is_large, 1.0, a)
    return where(is_large, scaled, exp(small * log(x) - x - gammaln(small)))


def _regularized(a: Any, x: Any) -> tuple[Any, Any]:
    """Return P(a, x) and Q(a, x)."""
    is_ordinary = logical_and(logical_and(greater(a, 0), less(a, math.inf)), logical_and(greater(x, 0), less(x, math.inf)))
    a_or_1, x_or_1 = where(is_ordinary, a, 1.0), where(is_ordinary, x, 1.0)
    deviation = divide(x_or_1 - a_or_1, a_or_1)
    is_central = logical_and(greater(a_or_1, _MIN_TEMME_ARGUMENT), less(abs(deviation), _MAX_TEMME_DEVIATION))
    # Q close to 0 for small arguments: a limit for `a` at which P and Q are about equal.
    limit = where(less_equal(x_or_1, 0.5), divide(-0.4, log(where(less_equal(x_or_1, 0.5), x_or_1, 0.5))), x_or_1 * 1.1)
    is_small = logical_and(less_equal(x_or_1, _MAX_SMALL_ARGUMENT), less(a_or_1, limit))
    is_below = logical_or(less_equal(x_or_1, _MAX_SMALL_ARGUMENT), less_equal(x_or_1, a_or_1))
    is_lower = logical_and(is_below, logical_not(logical_or(is_central, is_small)))
    is_upper = logical_not(logical_or(is_below, is_central))

    central = _temme(where(is_central, a_or_1, 30.0), where(is_central, deviation, 0.0))
    lower = _lower_series(where(is_lower, a_or_1, 1.0), where(is_lower, x_or_1, 1.0))
    small = _upper_small(where(is_small, a_or_1, 0.5), where(is_small, x_or_1, 1.0))
    upper = where(is_small, small, _upper_fraction(where(is_upper, a_or_1, 1.0), where(is_upper, x_or_1, 2.0)))
    p = where(is_central, central[0], where(is_lower, lower, 1 - upper))
    q = where(is_central, central[1], where(is_lower, 1 - lower, upper))
    # The limits: P is 0 at x = 0 and at a = inf, and 1 at x = inf and at a = 0; both limits at once have no value.
    is_zero = logical_or(equal(x, 0), isinf(a))
    is_one = logical_or(equal(a, 0), isinf(x))
    is_invalid = logical_or(logical_or(less(a, 0), less(x, 0)), logical_or(isnan(a + x), logical_and(is_zero, is_one)))
    return (
        where(is_invalid, math.nan, where(is_zero, 0.0, where(is_one, 1.0, p))),
        where(is_invalid, math.nan, where(is_zero, 1.0, where(is_one, 0.0, q))),
    )


def _temme(a: Any, deviation: Any) -> tuple[Any, Any]:
    """Return P and Q by Temme's expansion at x = a (1 + deviation)."""
    ratio = log1p_deficit_ratio(deviation)
    eta = deviation * sqrt(2 * ratio)
    inverse = divide(1, a)
    total: Any = 0.0
    for coefficients in reversed(_TEMME):
        total = total * inverse + polynomial(eta, coefficients)
    remainder = exp(-a * square(deviation) * ratio) * sqrt(inverse / (2 * math.pi)) * total
    argument = eta * sqrt(a / 2)
    return 0.5 * erfc(-argument) - remainder, 0.5 * erfc(argument) + remainder


def _lower_series(a: Any, x: Any) -> Any:
    """Return P by its power series x^a e^-x / Γ(a + 1) Σ x^n / ((a + 1) … (a + n)) (DLMF 8.11.4)."""

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        n, term, total = state
        next_term = term * divide(x, a + n)
        return n + 1, next_term, total + next_term

    one = x * 0 + 1.0
    _, _, total = while_loop(lambda s: any(greater(s[1], _LAST_TERM_RATIO * s[2])), step, (1.0, one, one))
    return divide(_power_times_exp(a, x) * total, a)


def _upper_small(a: Any, x: Any) -> Any:
    """Return Q for small x by 1 - x^a / Γ(a + 1) (1 + a Σ (-x)^n / (n! (a + n)))."""
    total: Any = 0.0
    for n in reversed(range(1, _NUM_SMALL_ARGUMENT_TERMS + 1)):
        total = (divide(1, a + n) + total) * divide(-x, n)
    exponent = a * log(x) - where(less(a, 0.5), gammaln_of_one_plus(where(less(a, 0.5), a, 0.0)), gammaln(a + 1))
    return -expm1(exponent) - exp(exponent) * a * total


def _upper_fraction(a: Any, x: Any) -> Any:
    """Return Q by its continued fraction (DLMF 8.9.2), evaluated by the modified Lentz algorithm."""
    first = x + 1 - a

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        n, c, d, value, _ = state
        numerator, denominator = n * (a - n), first + 2 * n
        d = divide(1, nonzero(numerator * d + denominator))
        c = nonzero(denominator + divide(numerator, c))
        return n + 1, c, d, value * c * d, c * d

    inverse = divide(1, nonzero(first))
    initial = (1.0, inverse * 0 + 1 / SMALLEST_FACTOR, inverse, inverse, inverse * 0 + 2)

    return _power_times_exp(a, x) * while_loop(lambda s: has_not_converged(s[0], s[4], a), step, initial)[3]


# ln x below which P(a, x) is x^a / Γ(a + 1) to float64 precision.
_MIN_LOG_ARGUMENT = -40.0


@in_float64
def log_sample_derivative(a: Any, log_x: Any) -> Any:
    """Return d(ln x)/da for a variate x of the gamma distribution at constant P(a, x). Requires a trace."""
    is_small = less(log_x, _MIN_LOG_ARGUMENT)
    x = exp(where(is_small, 0.0, log_x))
    slope = directional_derivative(lambda a: _regularized(a, x)[0], a)
    return where(is_small, divide(digamma(a + 1) - log_x, a), divide(-slope, gamma_density(a, x) * x))

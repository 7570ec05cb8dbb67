"""Logarithm of the gamma function, and its derivative."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dlc.numpy.apply import ArrayLike, Operand
from dlc.numpy.custom_derivatives import with_jvp_rule
from dlc.numpy.functions.comparison import equal, greater, isinf, less, logical_and
from dlc.numpy.functions.elementwise import abs, divide, log, log1p, multiply, rint, sin, square, tan, where
from dlc.numpy.functions.floats import copysign
from dlc.special.evaluation import in_float64, polynomial, promote_floats

__all__ = ["digamma", "gammaln"]


def gammaln(x: ArrayLike, /) -> Any:
    """Return ln |Γ(x)| for real x; inf at 0, -1, -2, …, and -inf at -inf, as in SciPy.

    Computed in float64, to a few ulp. Near its roots below -2 the error is up to 4e-15, if that is larger.
    """
    return _gammaln(*promote_floats(x))


def lgamma(x: ArrayLike, /) -> Any:
    """Return ln |Γ(x)| as C, JAX and PyTorch define it: `gammaln`, but inf at -inf."""
    (x,) = promote_floats(x)
    return gammaln(where(isinf(x), abs(x), x))


# Stirling's series, for n from 8 down to 1: B(2n) / (2n (2n - 1)) for ln Γ, and B(2n) / 2n for digamma.
_STIRLING = (-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_DIGAMMA_STIRLING = (-3617 / 8160, 1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
# From this argument on Stirling's series is accurate to float64 precision.
_MIN_STIRLING_ARGUMENT = 9
# ln Γ(2 + t) / t around its root: (-1)^k (ζ(k) - 1) / k for k from 27 down to 2, and 1 - γ (Abramowitz and Stegun, 6.1.33).
_TAYLOR_AT_2 = (
    -2.7595228851242334e-10, 5.731367241678862e-10, -1.1921401405860912e-09, 2.4836745438024785e-09, -5.183475041970047e-09,
    1.0838659214896955e-08, -2.2711094608943164e-08, 4.7698101693639804e-08, -1.0043224823968099e-07, 2.1207184805554665e-07,
    -4.492469198764566e-07, 9.55141213040742e-07, -2.039215753801366e-06, 4.374866789907488e-06, -9.439488275268397e-06,
    2.050721277567069e-05, -4.492623673813314e-05, 9.945751278180853e-05, -0.00022315475845357939, 0.0005096695247430425,
    -0.001192753911703261, 0.0028905103307415234, -0.007385551028673986, 0.020580808427784546, -0.0673523010531981,
    0.3224670334241132, 0.42278433509846713,
)  # fmt: skip


def _shift_argument(
    z: Any, direction: int, needs_shift: Callable[[Any], Any], start: float, step: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    """Shift z by `direction` (±1) while `needs_shift(z)` is true.

    Folds `step(total, z)` over the values of z before each shift.
    """
    total: Any = start
    for _ in range(_MIN_STIRLING_ARGUMENT):
        must_shift = needs_shift(z)
        total, z = where(must_shift, step(total, z), total), where(must_shift, z + direction, z)
    return z, total


def _gammaln_tangent(_: Operand, operands: Sequence[Operand], tangents: Sequence[Operand]) -> Any:
    return multiply(digamma(operands[0]), tangents[0])


@with_jvp_rule(_gammaln_tangent)
@in_float64
def _gammaln(x: Any) -> Any:
    is_reflected = less(x, -0.5)
    z = where(is_reflected, 1 - x, x)
    # Small arguments: ln Γ(2 + t), and the recurrence Γ(z + 1) = z Γ(z) to other intervals.
    low, product = _shift_argument(z, -1, lambda z: greater(z, 2.5), 1.0, lambda product, z: product * (z - 1))
    below_one, below_two, is_small = less(low, 0.5), less(low, 1.5), less(z, _MIN_STIRLING_ARGUMENT)
    t = low - where(below_one, 0, where(below_two, 1, 2))
    logarithm = log(where(is_small, where(below_one, divide(1, abs(t)), product), z))
    value = logarithm + t * polynomial(t, _TAYLOR_AT_2) - where(below_two, log1p(t), 0)
    series = 0.5 * math.log(2 * math.pi) + stirling_correction(z)
    value = where(is_small, value, (z - 0.5) * logarithm - z + series)
    # Reflection: Γ(x) Γ(1 - x) = π / sin(πx), where |sin(πx)| depends on the distance from the nearest integer.
    value = where(is_reflected, log(divide(math.pi, abs(sin((x - rint(x)) * math.pi)))) - value, value)
    return where(isinf(x), x, value)


def stirling_correction(z: Any) -> Any:
    """Return ln Γ(z) - ((z - ½) ln z - z + ½ ln 2π) for float64 from 9 on, by Stirling's series."""
    inverse = divide(1, z)
    return inverse * polynomial(square(inverse), _STIRLING)


def gammaln_of_one_plus(t: Any) -> Any:
    """Return ln Γ(1 + t) for float64 in [-½, ½], without rounding 1 + t."""
    return t * polynomial(t, _TAYLOR_AT_2) - log1p(t)


def digamma(x: ArrayLike, /) -> Any:
    """Return the derivative of ln Γ(x); ∓inf at ±0, nan at -1, -2, …

    Computed in float64, to a few ulp. Near its roots below 0 the error is up to 4e-15, if that is larger.
    """
    return _digamma(*promote_floats(x))


# The Taylor series of digamma around its positive root, computed with 45 digits; the root is the sum of two float64 values.
_ROOT, _ROOT_LOW_PART, _MAX_ROOT_DISTANCE = 1.4616321449683622, 9.5499954299656977152e-17, 0.25
_TAYLOR_AT_ROOT = (
    -0.000161706220919748034, 0.000236356015640270528, -0.0003454680251063077, 0.000504953265834602035,
    -0.00073807093899600513, 0.00107882520191629658, -0.00157693677143019726, 0.00230512632673492784, -0.00336980165543932808,
    0.00492678139572985345, -0.00720453438635686824, 0.0105387916166121754, -0.0154247659049489591, 0.0225976482322181047,
    -0.0331611264748473593, 0.0488042881641431072, -0.0721995612564547109, 0.107824050691262366, -0.163942705442406528,
    0.258499760955651011, -0.442763168983592106, 0.96767224544762117,
)  # fmt: skip


@in_float64
def _digamma(x: Any) -> Any:
    is_reflected = less(x, 0.5)
    z = where(is_reflected, 1 - x, x)
    z, total = _shift_argument(z, 1, lambda z: less(z, _MIN_STIRLING_ARGUMENT), 0.0, lambda total, z: total + divide(1, z))
    inverse = divide(1, z)
    value = log(z) - inverse / 2 - square(inverse) * polynomial(square(inverse), _DIGAMMA_STIRLING) - total
    from_root = (x - _ROOT) - _ROOT_LOW_PART
    value = where(less(abs(from_root), _MAX_ROOT_DISTANCE), from_root * polynomial(from_root, _TAYLOR_AT_ROOT), value)
    distance = x - rint(x)
    is_pole = logical_and(is_reflected, equal(distance, 0))
    value = where(is_reflected, value - divide(math.pi, tan(where(is_pole, 0.25, distance) * math.pi)), value)
    return where(is_pole, where(equal(x, 0), copysign(math.inf, -x), math.nan), value)

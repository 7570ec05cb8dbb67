"""The logarithm of the gamma function, and its derivative."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dlc.numpy.apply import ArrayLike, Operand
from dlc.numpy.functions.comparing import equal, greater, isinf, less, logical_and
from dlc.numpy.functions.elementwise import abs, divide, log, log1p, multiply, rint, sin, square, tan, where
from dlc.numpy.functions.floats import copysign
from dlc.numpy.rules import with_tangent
from dlc.special.formulas import floats, in_float64, polynomial

__all__ = ["digamma", "gammaln"]


def gammaln(x: ArrayLike, /) -> Any:
    """ln |Γ(x)|, for every real x; inf at 0, -1, -2, …, and as SciPy has it -inf at -inf.

    Computed in float64, to a few units in the last place; near its roots below -2 to 4e-15, if that is larger.
    """
    return _gammaln(*floats(x))


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
@in_float64
def _gammaln(x: Any) -> Any:
    reflected = less(x, -0.5)
    z = where(reflected, 1 - x, x)
    # Near: ln Γ(2 + t), from which logarithms lead up, and down to Γ(1 + t) and Γ(t).
    low, product = _moved(z, -1, lambda z: greater(z, 2.5), 1.0, lambda product, z: product * (z - 1))
    below_one, below_two, near = less(low, 0.5), less(low, 1.5), less(z, _FAR)
    t = low - where(below_one, 0, where(below_two, 1, 2))
    logarithm = log(where(near, where(below_one, divide(1, abs(t)), product), z))
    value = logarithm + t * polynomial(t, _AT_TWO) - where(below_two, log1p(t), 0)
    inverse = divide(1, z)
    series = 0.5 * math.log(2 * math.pi) + inverse * polynomial(square(inverse), _STIRLING)
    value = where(near, value, (z - 0.5) * logarithm - z + series)
    # Γ(x) Γ(1 - x) = π / sin(πx), of which only the distance from the next whole number matters.
    value = where(reflected, log(divide(math.pi, abs(sin((x - rint(x)) * math.pi)))) - value, value)
    return where(isinf(x), x, value)


def digamma(x: ArrayLike, /) -> Any:
    """The derivative of ln Γ(x); ∓inf at ±0, nan at -1, -2, …

    Computed in float64, to a few units in the last place or, near its roots below 0, 4e-15, whichever is larger.
    """
    return _digamma(*floats(x))


# The series of powers around the root of digamma, which lies between two numbers, computed with 45 digits.
_ROOT, _ROOT_REST, _AROUND_ROOT = 1.4616321449683622, 9.5499954299656977152e-17, 0.25
_AT_ROOT = (
    -0.000161706220919748034, 0.000236356015640270528, -0.0003454680251063077, 0.000504953265834602035,
    -0.00073807093899600513, 0.00107882520191629658, -0.00157693677143019726, 0.00230512632673492784, -0.00336980165543932808,
    0.00492678139572985345, -0.00720453438635686824, 0.0105387916166121754, -0.0154247659049489591, 0.0225976482322181047,
    -0.0331611264748473593, 0.0488042881641431072, -0.0721995612564547109, 0.107824050691262366, -0.163942705442406528,
    0.258499760955651011, -0.442763168983592106, 0.96767224544762117,
)  # fmt: skip


@in_float64
def _digamma(x: Any) -> Any:
    reflected = less(x, 0.5)
    z = where(reflected, 1 - x, x)
    z, total = _moved(z, 1, lambda z: less(z, _FAR), 0.0, lambda total, z: total + divide(1, z))
    inverse = divide(1, z)
    value = log(z) - inverse / 2 - square(inverse) * polynomial(square(inverse), _SLOPES) - total
    from_root = (x - _ROOT) - _ROOT_REST
    value = where(less(abs(from_root), _AROUND_ROOT), from_root * polynomial(from_root, _AT_ROOT), value)
    distance = x - rint(x)
    pole = logical_and(reflected, equal(distance, 0))
    value = where(reflected, value - divide(math.pi, tan(where(pole, 0.25, distance) * math.pi)), value)
    return where(pole, where(equal(x, 0), copysign(math.inf, -x), math.nan), value)

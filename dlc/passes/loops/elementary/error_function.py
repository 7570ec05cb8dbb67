"""The error function erf."""

from __future__ import annotations

from dlc.passes.loops.elementary.exponential import exp
from dlc.passes.loops.formula import Float, fma, polynomial, select

# Minimax rational function erf(x)/x = P(x²)/Q(x²), |x| ≤ 3.93. Relative error: 1.9e-8.
ERF_NUMERATOR_F32 = (1.1283791, 0.1907868, 0.05279058, 0.0037797065, 0.00028480586, 2.0418856e-06)
ERF_DENOMINATOR_F32 = (1.0, 0.5024131, 0.114258654, 0.014997639, 0.0011652269, 3.8003043e-05)
# Minimax polynomial in x² for erf(x)/x − 1, |x| ≤ 1. Relative error of erf: 1.3e-19.
ERF_SMALL_F64 = (
    0.1283791670955126, -0.3761263890318375, 0.11283791670954857, -0.02686617064507284, 0.005223977624780293,
    -0.0008548326978706758, 0.00012055331035525583, -1.4925593472140492e-05, 1.646097223494479e-06, -1.6350018818815367e-07,
    1.4657835362418698e-08, -1.1365489115069552e-09, 5.944955021913703e-11,
)  # fmt: skip
# Minimax polynomial in x − 3.4375 for log(1 − erf x), 1 ≤ x ≤ 5.95. Relative error of erf: 1.3e-18.
LOG_ERFC_LARGE_F64 = (
    -13.662081267725615, -7.145317559290541, -0.9657524015543252, -0.0054499553658662915, 0.0009211801409242667,
    -0.00015676924861336244, 2.6157177720051434e-05, -4.189519548546284e-06, 6.334298100814164e-07, -9.183507837565236e-08,
    3.30137300996245e-09, -4.293721193479753e-09, 2.596148056422898e-10, 1.7715279440732763e-09, 1.2448349883959072e-09,
    5.027909928102531e-10, 1.2064727167926195e-10, 1.6985949081323537e-11, 1.0496656594832188e-12,
)  # fmt: skip


def erf(x: Float) -> Float:
    """erf(x): rational in f32, at most 6 ulp. In f64 a polynomial up to 1, then 1 − exp(log(1 − erf |x|)); at most 4 ulp."""
    a = abs(x)
    if x.format.width == 32:
        t = x * x
        # Clamp, since rounding may exceed 1; from 3.92 on erf rounds to 1.
        y = (a * polynomial(t, ERF_NUMERATOR_F32) / polynomial(t, ERF_DENOMINATOR_F32)).at_most(1.0)
        return select(a > 3.92, x.constant(1.0), y).copysign(x)
    small = fma(a, polynomial(a * a, ERF_SMALL_F64), a)
    large = 1.0 - exp(polynomial(a.at_most(5.95) - 3.4375, LOG_ERFC_LARGE_F64))
    return select(a > 1.0, large, small).copysign(x)

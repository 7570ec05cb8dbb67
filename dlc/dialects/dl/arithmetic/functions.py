"""Functions of one float: roots, exponentials, trigonometry, rounding, classification.

NaN, infinities and signed zeros behave as in NumPy, if it has the function. 16-bit floats compute in f32 and round once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import ClassVar

import numpy as np

from dlc.dialects.dl import scalar
from dlc.dialects.dl.arithmetic.pointwise import FloatFunction, MathOp
from dlc.dialects.dl.base import Array, flag
from dlc.dialects.dl.interfaces import Body
from dlc.ir import Attribute, BoolAttr, SSAValue, arith, i1, irdl_op_definition, math, opt_prop_def


@irdl_op_definition
class SqrtOp(FloatFunction):
    """`√x`; NaN below 0."""

    name = "dl.sqrt"
    MATH: ClassVar[MathOp | None] = math.SqrtOp

    def numpy(self, x: Array) -> Array:
        return np.sqrt(x)


@irdl_op_definition
class CbrtOp(FloatFunction):
    """`∛x`, defined for negative `x` as well."""

    name = "dl.cbrt"
    MATH: ClassVar[MathOp | None] = math.CbrtOp

    def numpy(self, x: Array) -> Array:
        return np.cbrt(x)


@irdl_op_definition
class ExpOp(FloatFunction):
    """`e^x`.

    `at_most_zero` states that no element of `x` is positive, as after subtraction of the maximum; the result for a positive
    element is undefined. -inf gives 0, NaN stays NaN. `absolute_accuracy` implies `at_most_zero` and states that each result
    is only a term of a sum with a term of 1 (softmax), for which a small absolute error suffices. `normal_range` allows results
    of 0 below the normal numbers, and infinite results from about 0.7 times the largest number on.
    """

    name = "dl.exp"
    MATH: ClassVar[MathOp | None] = math.ExpOp
    at_most_zero = opt_prop_def(BoolAttr)
    absolute_accuracy = opt_prop_def(BoolAttr)
    normal_range = opt_prop_def(BoolAttr)

    def numpy(self, x: Array) -> Array:
        return np.exp(x)

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        if flag(self.absolute_accuracy) or flag(self.at_most_zero):
            return scalar.exp_at_most_zero(body, x, absolute_accuracy=flag(self.absolute_accuracy))
        if flag(self.normal_range):
            return scalar.exp_normal_range(body, x)
        return super().emit(body, x)


@irdl_op_definition
class Exp2Op(FloatFunction):
    """`2^x`."""

    name = "dl.exp2"
    MATH: ClassVar[MathOp | None] = math.Exp2Op

    def numpy(self, x: Array) -> Array:
        return np.exp2(x)


@irdl_op_definition
class Expm1Op(FloatFunction):
    """`e^x - 1`, accurate near 0."""

    name = "dl.expm1"
    MATH: ClassVar[MathOp | None] = math.ExpM1Op

    def numpy(self, x: Array) -> Array:
        return np.expm1(x)


@irdl_op_definition
class LogOp(FloatFunction):
    """`ln x`; -inf at 0, NaN below."""

    name = "dl.log"
    MATH: ClassVar[MathOp | None] = math.LogOp

    def numpy(self, x: Array) -> Array:
        return np.log(x)


@irdl_op_definition
class Log2Op(FloatFunction):
    """`log₂ x`; -inf at 0, NaN below."""

    name = "dl.log2"
    MATH: ClassVar[MathOp | None] = math.Log2Op

    def numpy(self, x: Array) -> Array:
        return np.log2(x)


@irdl_op_definition
class Log10Op(FloatFunction):
    """`log₁₀ x`; -inf at 0, NaN below."""

    name = "dl.log10"
    MATH: ClassVar[MathOp | None] = math.Log10Op

    def numpy(self, x: Array) -> Array:
        return np.log10(x)


@irdl_op_definition
class Log1pOp(FloatFunction):
    """`ln(1 + x)`; accurate near 0, -inf at -1, NaN below."""

    name = "dl.log1p"
    MATH: ClassVar[MathOp | None] = math.Log1pOp

    def numpy(self, x: Array) -> Array:
        return np.log1p(x)


@irdl_op_definition
class SinOp(FloatFunction):
    """`sin x`; NaN at the infinities."""

    name = "dl.sin"
    MATH: ClassVar[MathOp | None] = math.SinOp

    def numpy(self, x: Array) -> Array:
        return np.sin(x)


@irdl_op_definition
class CosOp(FloatFunction):
    """`cos x`; NaN at the infinities."""

    name = "dl.cos"
    MATH: ClassVar[MathOp | None] = math.CosOp

    def numpy(self, x: Array) -> Array:
        return np.cos(x)


@irdl_op_definition
class TanOp(FloatFunction):
    """`tan x`; NaN at the infinities."""

    name = "dl.tan"
    MATH: ClassVar[MathOp | None] = math.TanOp

    def numpy(self, x: Array) -> Array:
        return np.tan(x)


@irdl_op_definition
class AsinOp(FloatFunction):
    """`arcsin x`; NaN outside [-1, 1]."""

    name = "dl.asin"
    MATH: ClassVar[MathOp | None] = math.AsinOp

    def numpy(self, x: Array) -> Array:
        return np.arcsin(x)


@irdl_op_definition
class AcosOp(FloatFunction):
    """`arccos x`; NaN outside [-1, 1]."""

    name = "dl.acos"
    MATH: ClassVar[MathOp | None] = math.AcosOp

    def numpy(self, x: Array) -> Array:
        return np.arccos(x)


@irdl_op_definition
class AtanOp(FloatFunction):
    """`arctan x`."""

    name = "dl.atan"
    MATH: ClassVar[MathOp | None] = math.AtanOp

    def numpy(self, x: Array) -> Array:
        return np.arctan(x)


@irdl_op_definition
class SinhOp(FloatFunction):
    """`sinh x`."""

    name = "dl.sinh"
    MATH: ClassVar[MathOp | None] = math.SinhOp

    def numpy(self, x: Array) -> Array:
        return np.sinh(x)


@irdl_op_definition
class CoshOp(FloatFunction):
    """`cosh x`."""

    name = "dl.cosh"
    MATH: ClassVar[MathOp | None] = math.CoshOp

    def numpy(self, x: Array) -> Array:
        return np.cosh(x)


@irdl_op_definition
class TanhOp(FloatFunction):
    """`tanh x`."""

    name = "dl.tanh"
    MATH: ClassVar[MathOp | None] = math.TanhOp

    def numpy(self, x: Array) -> Array:
        return np.tanh(x)


@irdl_op_definition
class AsinhOp(FloatFunction):
    """`arsinh x`."""

    name = "dl.asinh"
    MATH: ClassVar[MathOp | None] = math.AsinhOp

    def numpy(self, x: Array) -> Array:
        return np.arcsinh(x)


@irdl_op_definition
class AcoshOp(FloatFunction):
    """`arcosh x`; NaN below 1."""

    name = "dl.acosh"
    MATH: ClassVar[MathOp | None] = math.AcoshOp

    def numpy(self, x: Array) -> Array:
        return np.arccosh(x)


@irdl_op_definition
class AtanhOp(FloatFunction):
    """`artanh x`; ±inf at ±1, NaN outside."""

    name = "dl.atanh"
    MATH: ClassVar[MathOp | None] = math.AtanhOp

    def numpy(self, x: Array) -> Array:
        return np.arctanh(x)


@irdl_op_definition
class ErfOp(FloatFunction):
    """`2/√π · ∫₀ˣ e^(-t²) dt`."""

    name = "dl.erf"
    MATH: ClassVar[MathOp | None] = math.ErfOp

    def numpy(self, x: Array) -> Array:
        return _erf(x)


@irdl_op_definition
class FloorOp(FloatFunction):
    """`⌊x⌋`."""

    name = "dl.floor"
    MATH: ClassVar[MathOp | None] = math.FloorOp

    def numpy(self, x: Array) -> Array:
        return np.floor(x)


@irdl_op_definition
class CeilOp(FloatFunction):
    """`⌈x⌉`."""

    name = "dl.ceil"
    MATH: ClassVar[MathOp | None] = math.CeilOp

    def numpy(self, x: Array) -> Array:
        return np.ceil(x)


@irdl_op_definition
class RoundOp(FloatFunction):
    """The nearest integer, ties to even."""

    name = "dl.round"
    MATH: ClassVar[MathOp | None] = math.RoundEvenOp

    def numpy(self, x: Array) -> Array:
        return np.rint(x)


@irdl_op_definition
class TruncOp(FloatFunction):
    """`x` truncated to an integer."""

    name = "dl.trunc"
    MATH: ClassVar[MathOp | None] = math.TruncOp

    def numpy(self, x: Array) -> Array:
        return np.trunc(x)


def _erf(x: Array) -> Array:
    return np.vectorize(erf, otypes=[np.float64])(x).astype(x.dtype)


def _compute_in_wide_float(body: Body, x: SSAValue, formula: Callable[[SSAValue], SSAValue]) -> SSAValue:
    """Emit a formula with several roundings: 16-bit floats compute it in f32, so that no intermediate value overflows."""
    narrow, wide = x.type, scalar.wide_float(x.type)
    return scalar.convert(body, formula(scalar.convert(body, x, narrow, wide)), wide, narrow)


@irdl_op_definition
class RsqrtOp(FloatFunction):
    """`1 / √x`; ±inf at ±0, NaN below."""

    name = "dl.rsqrt"

    def numpy(self, x: Array) -> Array:
        return 1 / np.sqrt(x)

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return _compute_in_wide_float(body, x, lambda x: body(arith.DivfOp(scalar.like(body, 1.0, x), body(math.SqrtOp(x)))))


@irdl_op_definition
class ReciprocalOp(FloatFunction):
    """`1 / x`; ±inf at ±0."""

    name = "dl.reciprocal"

    def numpy(self, x: Array) -> Array:
        return 1 / x

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return body(arith.DivfOp(scalar.like(body, 1.0, x), x))


@irdl_op_definition
class SigmoidOp(FloatFunction):
    """`1 / (1 + e^-x)`, computed as `e^x / (1 + e^x)` for negative `x` so that it does not overflow."""

    name = "dl.sigmoid"

    def numpy(self, x: Array) -> Array:
        e = np.exp(-np.abs(x))
        return np.where(x < 0, e, np.ones_like(e)) / (1 + e)

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        def formula(x: SSAValue) -> SSAValue:
            e, one = scalar.exp_at_most_zero(body, body(arith.NegfOp(body(math.AbsFOp(x))))), scalar.like(body, 1.0, x)
            is_negative = scalar.compare_with(body, "lt", x, 0.0, x.type)
            return body(arith.DivfOp(scalar.select(body, is_negative, e, one), scalar.add(body, one, e)))

        return _compute_in_wide_float(body, x, formula)


@irdl_op_definition
class IsnanOp(FloatFunction):
    """True where `x` is NaN."""

    name = "dl.isnan"

    def result_element(self) -> Attribute:
        return i1

    def numpy(self, x: Array) -> Array:
        return np.isnan(x)

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return body(arith.CmpfOp(x, x, "uno"))


@irdl_op_definition
class IsinfOp(FloatFunction):
    """True where `x` is infinite."""

    name = "dl.isinf"

    def result_element(self) -> Attribute:
        return i1

    def numpy(self, x: Array) -> Array:
        return np.isinf(x)

    def emit(self, body: Body, x: SSAValue) -> SSAValue:
        return scalar.compare_with(body, "eq", body(math.AbsFOp(x)), float("inf"), self.element)

"""Activations: functions of one element that decompose to simpler elementwise ops.

16-bit floats are computed in f32 and rounded once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import erf, isfinite

import numpy as np

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AbsOp, AddOp, DivOp, MaximumOp, MinimumOp, MulOp, SelectOp
from dlc.dialects.dl.arithmetic.functions import ErfOp, Expm1Op, ExpOp, Log1pOp, SigmoidOp, TanhOp
from dlc.dialects.dl.arithmetic.logic import GreaterOp, LessOp
from dlc.dialects.dl.base import Array, Tensor, broadcast_shapes, compatible, element_type_of, number, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import is_float, numpy_dtype
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.scalar import wide_float
from dlc.errors import DTypeError, ShapeError
from dlc.ir import Attribute, FloatAttr, SSAValue, StringAttr, TensorType, irdl_op_definition, operand_def, prop_def, result_def
from dlc.shapes.dims import Size


def _erf(x: Array) -> Array:
    return np.vectorize(erf, otypes=[np.float64])(x).astype(x.dtype)


def widen_floats(build: DlBuilder, value: SSAValue) -> SSAValue:
    """Return `value` with 16-bit floats converted to f32."""
    return cast_to(build, value, wide_float(element_type_of(value)))


def cast_to(build: DlBuilder, value: SSAValue, to: Attribute) -> SSAValue:
    """Return `value` with another element type; itself if it has that type."""
    return value if element_type_of(value) == to else build(CastOp, value, to=to)


class Activation(Composite):
    """`y = f(x)` on floats, with the shape and element type of `x`."""

    x = operand_def(TensorType)
    result = result_def(TensorType)

    @abstractmethod
    def formula(self, x: Array) -> Array:
        """Compute f with NumPy, on f32 or f64."""

    @abstractmethod
    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        """Return f computed by simpler ops, on f32 or f64."""

    def infer(self) -> Sequence[Tensor]:
        element = element_type_of(self.x)
        if not is_float(element):
            raise DTypeError(f"{self.name}: element type {element}; cast the operand to a float")
        return [tensor_type(shape_of(self.x), element)]

    def reference(self, *operands: Array) -> Array:
        (x,) = operands
        with np.errstate(all="ignore"):
            return self.formula(x.astype(numpy_dtype(wide_float(element_type_of(self.x))))).astype(x.dtype)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build = DlBuilder(self)
        return [cast_to(build, self.expand(build, widen_floats(build, operands[0])), element_type_of(self.x))]


@irdl_op_definition
class GeluOp(Activation):
    """`y = x·Φ(x)`, Φ the normal cumulative distribution: by erf (`approximate = "none"`) or its tanh approximation (`"tanh"`).

    (C1) `x` has a float type; (C2) `approximate` is "none" or "tanh". NaN stays NaN; -inf gives NaN, as 0·inf.
    """

    name = "dl.gelu"
    approximate = prop_def(StringAttr)

    def infer(self) -> Sequence[Tensor]:
        if self.approximate.data not in ("none", "tanh"):
            raise DTypeError(f"dl.gelu: approximate {self.approximate}; expected 'none' or 'tanh'")
        return super().infer()

    def formula(self, x: Array) -> Array:
        if self.approximate.data == "tanh":
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3)))
        return 0.5 * x * (1 + _erf(x / np.sqrt(2).astype(x.dtype)))

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        half, one = build.scalar(0.5, like=x), build.scalar(1.0, like=x)
        if self.approximate.data == "tanh":
            # √(2/π)·(x + 0.044715·x³) = x·(√(2/π) + √(2/π)·0.044715·x²)
            root = (2 / np.pi) ** 0.5
            cubic = build(MulOp, build(MulOp, x, x), build.scalar(root * 0.044715, like=x))
            inner = build(TanhOp, build(MulOp, x, build(AddOp, cubic, build.scalar(root, like=x))))
        else:
            inner = build(ErfOp, build(MulOp, x, build.scalar(0.5**0.5, like=x)))
        return build(MulOp, build(MulOp, x, half), build(AddOp, inner, one))


@irdl_op_definition
class SiluOp(Activation):
    """`y = x·sigmoid(x)`. (C1) `x` has a float type. NaN stays NaN; -inf gives NaN, as inf·0."""

    name = "dl.silu"

    def formula(self, x: Array) -> Array:
        e = np.exp(-np.abs(x))
        return x * (np.where(x < 0, e, np.ones_like(e)) / (1 + e))

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return build(MulOp, x, build(SigmoidOp, x))


@irdl_op_definition
class HardsigmoidOp(Activation):
    """`y = min(max(alpha·x + beta, 0), 1)`. (C1) `x` has a float type. NaN stays NaN."""

    name = "dl.hardsigmoid"
    alpha = prop_def(FloatAttr)
    beta = prop_def(FloatAttr)

    def formula(self, x: Array) -> Array:
        return np.clip(number(self.alpha) * x + number(self.beta), 0, 1)

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return _clipped_line(build, x, number(self.alpha), number(self.beta))


def _clipped_line(build: DlBuilder, x: SSAValue, slope: float, offset: float) -> SSAValue:
    line = build(AddOp, build(MulOp, x, build.scalar(slope, like=x)), build.scalar(offset, like=x))
    return build(MinimumOp, build(MaximumOp, line, build.scalar(0.0, like=x)), build.scalar(1.0, like=x))


@irdl_op_definition
class HardswishOp(Activation):
    """`y = x·min(max(x/6 + 1/2, 0), 1)`. (C1) `x` has a float type. NaN stays NaN; -inf gives NaN, as inf·0."""

    name = "dl.hardswish"

    def formula(self, x: Array) -> Array:
        # x is multiplied by the clipped factor, which is at most 1, so that the product does not overflow.
        return x * np.clip(x / 6 + 0.5, 0, 1)

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return build(MulOp, x, _clipped_line(build, x, 1 / 6, 0.5))


@irdl_op_definition
class LeakyReluOp(Activation):
    """`y = x` where `x ≥ 0`, else `alpha·x`. (C1) `x` has a float type. NaN stays NaN."""

    name = "dl.leaky_relu"
    alpha = prop_def(FloatAttr)

    def formula(self, x: Array) -> Array:
        return np.where(x >= 0, x, number(self.alpha) * x)

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        is_negative = build(LessOp, x, build.scalar(0.0, like=x))
        return build(SelectOp, is_negative, build(MulOp, x, build.scalar(number(self.alpha), like=x)), x)


@irdl_op_definition
class EluOp(Activation):
    """`y = x` where `x > 0`, else `alpha·(exp(x) - 1)`. (C1) `x` has a float type. NaN stays NaN."""

    name = "dl.elu"
    alpha = prop_def(FloatAttr)

    def formula(self, x: Array) -> Array:
        return np.where(x > 0, x, number(self.alpha) * np.expm1(x))

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return _exponential_unit(build, x, number(self.alpha))


def _exponential_unit(build: DlBuilder, x: SSAValue, alpha: float) -> SSAValue:
    """Return `x` where it is above 0, else `alpha·(exp(x) - 1)`."""
    negative_branch = build(MulOp, build(Expm1Op, x), build.scalar(alpha, like=x))
    return build(SelectOp, build(GreaterOp, x, build.scalar(0.0, like=x)), x, negative_branch)


@irdl_op_definition
class SeluOp(Activation):
    """`y = gamma·x` where `x > 0`, else `gamma·alpha·(exp(x) - 1)`. (C1) `x` has a float type. NaN stays NaN."""

    name = "dl.selu"
    alpha = prop_def(FloatAttr)
    gamma = prop_def(FloatAttr)

    def formula(self, x: Array) -> Array:
        return number(self.gamma) * np.where(x > 0, x, number(self.alpha) * np.expm1(x))

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return build(MulOp, _exponential_unit(build, x, number(self.alpha)), build.scalar(number(self.gamma), like=x))


@irdl_op_definition
class CeluOp(Activation):
    """`y = max(x, 0) + min(alpha·(exp(x/alpha) - 1), 0)`.

    (C1) `x` has a float type; (C2) `alpha` is finite and not 0. NaN stays NaN.
    """

    name = "dl.celu"
    alpha = prop_def(FloatAttr)

    def infer(self) -> Sequence[Tensor]:
        alpha = number(self.alpha)
        if alpha == 0 or not isfinite(alpha):
            raise DTypeError(f"dl.celu: alpha {alpha}; expected a finite value other than 0")
        return super().infer()

    def formula(self, x: Array) -> Array:
        return np.maximum(x, 0) + np.minimum(number(self.alpha) * np.expm1(x / number(self.alpha)), 0)

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        alpha = number(self.alpha)
        negative_branch = build(
            MulOp, build(Expm1Op, build(MulOp, x, build.scalar(1 / alpha, like=x))), build.scalar(alpha, like=x)
        )
        return build(SelectOp, build(GreaterOp, x, build.scalar(0.0, like=x)), x, negative_branch)


@irdl_op_definition
class SoftplusOp(Activation):
    """`y = log(1 + exp(x))`, without overflow. (C1) `x` has a float type. NaN stays NaN."""

    name = "dl.softplus"

    def formula(self, x: Array) -> Array:
        return np.logaddexp(x, np.zeros((), x.dtype))

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        # log(1 + eˣ) = max(x, 0) + log1p(e^-|x|): the exponent is never positive.
        return build(AddOp, build(MaximumOp, x, build.scalar(0.0, like=x)), build(Log1pOp, _exp_of_negated_magnitude(build, x)))


def _exp_of_negated_magnitude(build: DlBuilder, x: SSAValue) -> SSAValue:
    return build(ExpOp, build(MulOp, build(AbsOp, x), build.scalar(-1.0, like=x)), at_most_zero=True)


@irdl_op_definition
class SoftsignOp(Activation):
    """`y = x / (1 + |x|)`. (C1) `x` has a float type. NaN stays NaN; infinities give NaN."""

    name = "dl.softsign"

    def formula(self, x: Array) -> Array:
        return x / (1 + np.abs(x))

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return build(DivOp, x, build(AddOp, build(AbsOp, x), build.scalar(1.0, like=x)))


@irdl_op_definition
class MishOp(Activation):
    """`y = x·tanh(log(1 + exp(x)))`. (C1) `x` has a float type. NaN stays NaN; -inf gives NaN, as inf·0."""

    name = "dl.mish"

    def formula(self, x: Array) -> Array:
        return x * np.tanh(np.logaddexp(x, np.zeros((), x.dtype)))

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        # tanh(log(1 + eˣ)) = ((1 + eˣ)² - 1) / ((1 + eˣ)² + 1); with e = e^-|x| both sides of 0 stay finite:
        # x ≥ 0: (1 + 2e) / (1 + 2e + 2e²);  x < 0: (2e + e²) / (2e + e² + 2).
        e = _exp_of_negated_magnitude(build, x)
        one, two = build.scalar(1.0, like=x), build.scalar(2.0, like=x)
        twice, square = build(MulOp, e, two), build(MulOp, e, e)
        is_negative = build(LessOp, x, build.scalar(0.0, like=x))
        numerator = build(SelectOp, is_negative, build(AddOp, twice, square), build(AddOp, twice, one))
        denominator_offset = build(SelectOp, is_negative, two, build(MulOp, square, two))
        return build(MulOp, x, build(DivOp, numerator, build(AddOp, numerator, denominator_offset)))


@irdl_op_definition
class ThresholdedReluOp(Activation):
    """`y = x` where `x > alpha`, else 0. (C1) `x` has a float type. NaN gives 0, as it is not above alpha."""

    name = "dl.thresholded_relu"
    alpha = prop_def(FloatAttr)

    def formula(self, x: Array) -> Array:
        return np.where(x > number(self.alpha), x, 0)

    def expand(self, build: DlBuilder, x: SSAValue) -> SSAValue:
        return build(SelectOp, build(GreaterOp, x, build.scalar(number(self.alpha), like=x)), x, build.scalar(0.0, like=x))


@irdl_op_definition
class PreluOp(Composite):
    """`y = x` where `x ≥ 0`, else `slope·x`. (C1) `slope` broadcasts to the shape of `x`; (C2) equal element types."""

    name = "dl.prelu"
    x = operand_def(TensorType)
    slope = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        x, slope = shape_of(self.x), shape_of(self.slope)
        if not compatible(broadcast_shapes(self.name, x, slope), x):
            raise ShapeError(f"dl.prelu: slope {slope} does not broadcast to x {x}; reshape it to the channel axis")
        if element_type_of(self.x) != element_type_of(self.slope):
            raise DTypeError(f"dl.prelu: x is {element_type_of(self.x)}, slope {element_type_of(self.slope)}; cast one")
        return [tensor_type(x, element_type_of(self.x))]

    def broadcast(self) -> Sequence[tuple[Sequence[Size], Sequence[Size]]]:
        return [(shape_of(self.slope), shape_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        x, slope = operands
        return np.where(x < 0, slope * x, x)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        x, slope = operands
        build = DlBuilder(self)
        return [build(SelectOp, build(LessOp, x, build.scalar(0, like=x)), build(MulOp, x, slope), x)]

"""Pointwise operators: arithmetic, math functions, comparisons, bitwise operations and activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import ml_dtypes
import numpy as np

import dlc.numpy as dnp
from dlc import nn, special
from dlc.dialects import dl
from dlc.numpy.apply import apply, convert, is_floating
from dlc.pytorch.rules.rule_table import (
    Dtype,
    Rule,
    RuleTable,
    is_tensor,
    promoted,
    promoted_dtype,
    promoted_floats,
)
from dlc.special.gamma import lgamma
from dlc.special.incomplete_gamma import log_sample_derivative

table = RuleTable()


def _with_float_operands(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function to promote its operands to floats."""
    return lambda *xs: function(*promoted_floats(*xs))


def _with_promoted_operands(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function to promote its operands to one dtype."""
    return lambda *xs: function(*promoted(*xs))


def _spherical_bessel_j0(x: Any) -> Any:
    """Return sin(x) / x: 1 at 0, and 0 at infinity."""
    is_infinite = dnp.isinf(x)
    return dnp.where(is_infinite, 0, dnp.sinc(dnp.where(is_infinite, 0, x) / math.pi))


_OF_FLOATS: dict[str, Rule] = {
    "acos": dnp.acos, "acosh": dnp.acosh, "asin": dnp.asin, "asinh": dnp.asinh, "atan": dnp.atan, "atanh": dnp.atanh,
    "cos": dnp.cos, "cosh": dnp.cosh, "sin": dnp.sin, "sinh": dnp.sinh, "tan": dnp.tan, "tanh": dnp.tanh,
    "exp": dnp.exp, "exp2": dnp.exp2, "expm1": dnp.expm1, "log": dnp.log, "log2": dnp.log2, "log10": dnp.log10,
    "log1p": dnp.log1p, "sqrt": dnp.sqrt, "reciprocal": dnp.reciprocal, "sigmoid": nn.sigmoid,
    "erf": special.erf, "erfc": special.erfc, "erfinv": special.erfinv, "lgamma": lgamma,
    "digamma": special.digamma, "special_xlog1py": special.xlog1py, "xlogy.Tensor": special.xlogy, "atan2": dnp.atan2,
    "silu": nn.silu, "mish": nn.mish, "hardswish": nn.hard_swish, "hardsigmoid": nn.hard_sigmoid,
    "rsqrt": partial(apply, dl.RsqrtOp), "hypot": dnp.hypot, "nextafter": dnp.nextafter,
    "copysign.Tensor copysign.Scalar": dnp.copysign, "i0 special_modified_bessel_i0": special.i0, "special_i0e": special.i0e,
    "special_i1 special_modified_bessel_i1": special.i1, "special_i1e": special.i1e,
    "special_bessel_j0": special.j0, "special_bessel_j1": special.j1, "special_bessel_y0": special.y0,
    "special_bessel_y1": special.y1, "special_modified_bessel_k0": special.k0, "special_modified_bessel_k1": special.k1,
    "special_scaled_modified_bessel_k0": special.k0e, "special_scaled_modified_bessel_k1": special.k1e,
    "special_spherical_bessel_j0": _spherical_bessel_j0,
    "special_erfcx": special.erfcx, "polygamma": special.polygamma, "special_ndtri": special.ndtri,
    "igamma special_gammainc": special.gammainc, "igammac special_gammaincc": special.gammaincc,
    "special_zeta special_zeta.self_scalar special_zeta.other_scalar": special.zeta,
}  # fmt: skip

for _name, _function in _OF_FLOATS.items():
    table(_name)(_with_float_operands(_function))

_OF_ONE_DTYPE: dict[str, Rule] = {
    "eq.Tensor eq.Scalar": dnp.equal, "ne.Tensor ne.Scalar": dnp.not_equal,
    "lt.Tensor lt.Scalar": dnp.less, "le.Tensor le.Scalar": dnp.less_equal,
    "gt.Tensor gt.Scalar": dnp.greater, "ge.Tensor ge.Scalar": dnp.greater_equal,
    "maximum": dnp.maximum, "minimum": dnp.minimum, "fmax": dnp.fmax, "fmin": dnp.fmin,
    "max.other": dnp.maximum, "min.other": dnp.minimum,
    "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor": dnp.remainder,
    "fmod.Tensor fmod.Scalar": dnp.fmod,
    "bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor __and__.Tensor __and__.Scalar": dnp.bitwise_and,
    "bitwise_or.Tensor bitwise_or.Scalar bitwise_or.Scalar_Tensor __or__.Tensor __or__.Scalar": dnp.bitwise_or,
    "bitwise_xor.Tensor bitwise_xor.Scalar bitwise_xor.Scalar_Tensor __xor__.Tensor __xor__.Scalar": dnp.bitwise_xor,
    "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_left_shift.Scalar_Tensor": dnp.bitwise_left_shift,
    "__lshift__.Tensor __lshift__.Scalar": dnp.bitwise_left_shift,
    "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar bitwise_right_shift.Scalar_Tensor": dnp.bitwise_right_shift,
    "__rshift__.Tensor __rshift__.Scalar": dnp.bitwise_right_shift,
}  # fmt: skip

for _names, _function in _OF_ONE_DTYPE.items():
    table(_names)(_with_promoted_operands(_function))

_OF_ANY: dict[str, Rule] = {
    "abs": dnp.abs, "neg": dnp.negative, "bitwise_not": dnp.bitwise_invert, "relu": nn.relu,
    "isnan": dnp.isnan, "isinf": dnp.isinf, "ceil": dnp.ceil, "floor": dnp.floor, "trunc": dnp.trunc,
    "logical_not": dnp.logical_not, "logical_and": dnp.logical_and, "logical_or": dnp.logical_or,
    "logical_xor": dnp.logical_xor, "signbit": dnp.signbit,
}  # fmt: skip

for _name, _function in _OF_ANY.items():
    table(_name)(_function)


@table("sign")
def sign(x: Any) -> Any:
    return x if x.dtype == np.bool_ else dnp.sign(x)


@table("add.Tensor add.Scalar")
def add(x: Any, y: Any, alpha: float = 1) -> Any:
    x, y = promoted(x, y)
    return dnp.logical_or(x, y) if x.dtype == np.bool_ else dnp.add(x, y if alpha == 1 else dnp.multiply(y, alpha))


@table("sub.Tensor sub.Scalar")
def sub(x: Any, y: Any, alpha: float = 1) -> Any:
    x, y = promoted(x, y)
    return dnp.subtract(x, y if alpha == 1 else dnp.multiply(y, alpha))


@table("rsub.Scalar rsub.Tensor")
def rsub(x: Any, y: Any, alpha: float = 1) -> Any:
    return sub(y, x, alpha)


def _with_unrounded_scalars(rule: Rule) -> Rule:
    """Compute in float32 if an operand is a scalar that half precision cannot represent; PyTorch rounds only the result."""

    def with_unrounded_scalars(x: Any, y: Any, **settings: Any) -> Any:
        dtype = promoted_dtype(x, y)
        if all(_represents(dtype, v) for v in (x, y)):
            return rule(x, y, **settings)
        return convert(rule(*(convert(v, np.float32) for v in (x, y)), **settings), dtype)

    return with_unrounded_scalars


def _represents(dtype: Dtype, x: Any) -> bool:
    """Return whether a half-precision dtype represents the scalar `x` exactly; True for other dtypes and arrays."""
    if not is_floating(dtype) or dtype.itemsize > 2:
        return True
    if is_tensor(x):
        return bool(x.ndim) or x.dtype == dtype
    if not isinstance(x, int | float) or not math.isfinite(x):
        return True
    with np.errstate(over="ignore"):
        return bool(np.asarray(float(x)).astype(dtype).astype(np.float64) == x)


@table("mul.Tensor mul.Scalar")
@_with_unrounded_scalars
def multiply(x: Any, y: Any) -> Any:
    return dnp.multiply(*promoted(x, y))


@table("div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode true_divide.Tensor true_divide.Scalar")
@_with_unrounded_scalars
def div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return dnp.divide(*promoted_floats(x, y))
    x, y = promoted(x, y)
    if rounding_mode == "floor":
        return dnp.floor_divide(x, y)
    # For integers: x - fmod(x, y) is a multiple of y, so floor division is exact and truncates toward 0.
    return dnp.trunc(dnp.divide(x, y)) if is_floating(x.dtype) else dnp.floor_divide(dnp.subtract(x, dnp.fmod(x, y)), y)


@table("floor_divide floor_divide.Scalar")
def floor_divide(x: Any, y: Any) -> Any:
    return div(x, y, rounding_mode="floor")


@table("pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar")
def power(x: Any, y: Any) -> Any:
    if isinstance(y, int | float) and float(y) in _POWERS:
        return _POWERS[float(y)](convert(x, promoted_dtype(x, y)))
    x, y = promoted(x, y)
    if x.dtype.kind != "i":
        return dnp.power(x, y)
    # A negative power of 1 and -1 has the parity of the exponent; other integers have the power 0.
    is_negative = dnp.less(y, 0)
    magnitude = dnp.power(x, dnp.where(is_negative, dnp.bitwise_and(y, 1), y))
    return dnp.where(dnp.logical_and(is_negative, dnp.not_equal(dnp.abs(x), 1)), 0, magnitude)


_POWERS: dict[float, Callable[[Any], Any]] = {
    1.0: lambda x: x,
    2.0: dnp.square,
    3.0: lambda x: dnp.multiply(dnp.square(x), x),
    0.5: dnp.sqrt,
}


@table("round round.decimals")
def round(x: Any, decimals: int = 0) -> Any:
    return dnp.round(x, decimals)


@table("clamp clamp.Tensor clamp_min clamp_min.Tensor clip clip.Tensor")
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    dtype = promoted_dtype(*(v for v in (x, min, max) if v is not None))
    x = convert(x, dtype)
    x = x if min is None else dnp.maximum(x, convert(min, dtype))
    return x if max is None else dnp.minimum(x, convert(max, dtype))


@table("clamp_max clamp_max.Tensor")
def clamp_max(x: Any, max: Any) -> Any:
    return clamp(x, None, max)


@table("hardtanh")
def hardtanh(x: Any, min_val: float = -1, max_val: float = 1) -> Any:
    return clamp(x, min_val, max_val)


@table("relu6")
def relu6(x: Any) -> Any:
    return clamp(x, 0, 6)


@table("where.self where.ScalarOther where.ScalarSelf where.Scalar")
def where(condition: Any, x: Any, y: Any) -> Any:
    return dnp.where(convert(condition, np.bool_), *promoted(x, y))


@table("masked_fill.Scalar masked_fill.Tensor")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return dnp.where(mask, convert(value, x.dtype), x)


@table("lerp.Scalar lerp.Tensor")
def lerp(x: Any, y: Any, weight: Any) -> Any:
    return dnp.add(x, dnp.multiply(dnp.subtract(y, x), weight))


def _rounded_once(rule: Rule) -> Rule:
    """Compute a rule of three operands in float32 for half precision, so that it rounds once."""

    def rounded_once(x: Any, y: Any, z: Any, value: float = 1) -> Any:
        dtype = promoted_dtype(x, y, z)
        if not is_floating(dtype) or dtype.itemsize > 2:
            return rule(x, y, z, value)
        return convert(rule(*(convert(v, np.float32) for v in (x, y, z)), value), dtype)

    return rounded_once


@table("addcmul")
@_rounded_once
def addcmul(x: Any, y: Any, z: Any, value: float = 1) -> Any:
    return add(x, dnp.multiply(*promoted(y, z)), value)


@table("prims::fma")
def fma(x: Any, y: Any, z: Any) -> Any:
    return dnp.add(dnp.multiply(x, y), z)


@table("addcdiv")
@_rounded_once
def addcdiv(x: Any, y: Any, z: Any, value: float = 1) -> Any:
    return add(x, dnp.divide(*promoted_floats(y, z)), value)


@table("gelu")
def gelu(x: Any, approximate: str = "none") -> Any:
    return nn.gelu(x, approximate == "tanh")


@table("elu")
def elu(x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    negative_part = dnp.multiply(dnp.expm1(dnp.multiply(dnp.minimum(x, 0.0), input_scale)), alpha * scale)
    return (
        nn.elu(x, alpha) if scale == input_scale == 1 else dnp.where(dnp.greater(x, 0), dnp.multiply(x, scale), negative_part)
    )


@table("leaky_relu")
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Any:
    return nn.leaky_relu(x, negative_slope)


@table("softplus")
def softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    if beta == 1 and threshold == 20:
        # Above the threshold log(1 + eˣ) equals x in float32.
        return nn.softplus(x)
    scaled = dnp.multiply(x, beta)
    return dnp.where(dnp.greater(scaled, threshold), x, dnp.divide(nn.softplus(scaled), beta))


@table("log_sigmoid")
def log_sigmoid(x: Any) -> Any:
    return dnp.negative(nn.softplus(dnp.negative(x)))


@table("prelu _prelu_kernel")
def prelu(x: Any, weight: Any) -> Any:
    if weight.ndim == 1:
        weight = dnp.reshape(weight, (-1, *(1,) * (x.ndim - 2)) if weight.shape[0] > 1 else ())
    return dnp.where(dnp.greater(x, 0), x, dnp.multiply(weight, x))


@table("logit")
def logit(x: Any, eps: float | None = None) -> Any:
    (x,) = promoted_floats(x)
    x = x if eps is None else clamp(x, eps, 1 - eps)
    return dnp.log(dnp.divide(x, dnp.subtract(1.0, x)))


@table("_standard_gamma_grad")
def standard_gamma_derivative(a: Any, sample: Any) -> Any:
    return dnp.multiply(log_sample_derivative(a, dnp.log(sample)), sample)


@table("ldexp.Tensor")
def ldexp(x: Any, y: Any) -> Any:
    x, y = promoted_floats(x, y)
    return dnp.multiply(x, dnp.exp2(y))


@table("gcd")
def gcd(x: Any, y: Any) -> Any:
    return dnp.gcd(*promoted(x, y))


@table("lcm")
def lcm(x: Any, y: Any) -> Any:
    return dnp.lcm(*promoted(x, y))


@table("nan_to_num")
def nan_to_num(x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    return dnp.nan_to_num(x, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@table("deg2rad")
def deg2rad(x: Any) -> Any:
    (x,) = promoted_floats(x)
    return dnp.multiply(x, math.pi / 180)


@table("_to_copy prims::convert_element_type")
def to_copy(x: Any, dtype: Any = None) -> Any:
    if dtype == ml_dtypes.float8_e4m3fn and x.dtype != dtype:
        # The format has no infinity, and PyTorch saturates; NaN remains.
        limit = float(cast(Any, ml_dtypes.finfo)(ml_dtypes.float8_e4m3fn).max)
        x = dnp.clip(x, -limit, limit)
    return x if dtype is None else convert(x, dtype)


@table("clone alias detach lift lift_fresh_copy lift_fresh contiguous alias_copy detach_copy")
def identity(x: Any) -> Any:
    return x


@table("copy")
def copy(x: Any, source: Any) -> Any:
    return dnp.broadcast_to(convert(source, x.dtype), x.shape)


@table("frexp.Tensor")
def frexp(x: Any) -> Any:
    return dnp.frexp(x)

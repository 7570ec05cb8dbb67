"""Ops on complex arrays, which are pairs of real arrays, and Fourier transforms."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.frontend.complex_numbers import Complex, from_parts, real_and_imaginary
from dlc.frontend.trace import Tracer
from dlc.stablehlo import contraction_reduction, data_movement, elementwise, gather_scatter, sorting, window_reduction
from dlc.stablehlo.body_numbering import binary_op, returned
from dlc.stablehlo.node import Converter, StableHloNode, StableHloValue


def _reciprocal_root(x: Any) -> Any:
    return 1 / dnp.sqrt(x)


def _direction(x: Any) -> Any:
    """Return x / |x|, or 0 for 0."""
    magnitude = dnp.abs(x)
    return x / dnp.where(dnp.equal(magnitude, 0), 1, magnitude)


def _is_finite(x: Any) -> Any:
    return dnp.logical_and(*map(dnp.isfinite, real_and_imaginary(x)))


def _times_sine(x: Any, angle: Any) -> Any:
    """Return x · sin(angle), 0 for the angle 0, also if x is infinite."""
    is_real = dnp.logical_and(dnp.equal(angle, 0), dnp.isinf(x))
    return dnp.where(is_real, angle, x * dnp.sin(angle))


def _sinh(x: Any) -> Any:
    a, b = real_and_imaginary(x)
    return from_parts(dnp.sinh(a) * dnp.cos(b), _times_sine(dnp.cosh(a), b))


def _cosh(x: Any) -> Any:
    a, b = real_and_imaginary(x)
    return from_parts(dnp.cosh(a) * dnp.cos(b), _times_sine(dnp.sinh(a), b))


def _tanh(x: Any) -> Any:
    """(sinh 2a + i·sin 2b) / (cosh 2a + cos 2b) of a + b·i."""
    a, b = real_and_imaginary(x)
    # Beyond this bound tanh is ±1, and cosh would overflow.
    bound = 40 if a.dtype == np.float32 else 350
    twice_a, twice_b = 2 * dnp.clip(a, -bound, bound), 2 * b
    denominator = dnp.cosh(twice_a) + dnp.cos(twice_b)
    return from_parts(dnp.sinh(twice_a) / denominator, dnp.sin(twice_b) / denominator)


def _tan(x: Any) -> Any:
    """-i·tanh(i·x)"""
    a, b = real_and_imaginary(x)
    real, imag = real_and_imaginary(_tanh(from_parts(-b, a)))
    return from_parts(imag, -real)


def _expm1(x: Any) -> Any:
    a, b = real_and_imaginary(x)
    return from_parts(dnp.expm1(a) * dnp.cos(b) - 2 * dnp.square(dnp.sin(b / 2)), dnp.exp(a) * dnp.sin(b))


def _log1p(x: Any) -> Any:
    a, b = real_and_imaginary(x)
    is_small = dnp.less(dnp.abs(a) + dnp.abs(b), 0.5)
    small = dnp.log1p(dnp.where(is_small, a * (a + 2) + b * b, 0)) / 2
    return from_parts(dnp.where(is_small, small, dnp.log(dnp.hypot(a + 1, b))), dnp.atan2(b, a + 1))


def _power(x: Any, y: Any) -> Any:
    """exp(y·log x); 0 for x = 0, and 1 for y = 0."""
    real, imag = real_and_imaginary(dnp.exp(y * dnp.log(x)))
    is_zero, is_one = dnp.equal(dnp.abs(x), 0), dnp.equal(dnp.abs(y), 0)
    return from_parts(dnp.where(is_one, 1, dnp.where(is_zero, 0, real)), dnp.where(is_one | is_zero, 0, imag))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "abs": dnp.abs, "real": dnp.real, "imag": dnp.imag, "complex": from_parts,
    "exponential": dnp.exp, "log": dnp.log, "sqrt": dnp.sqrt,
    "exponential_minus_one": _expm1, "log_plus_one": _log1p, "tan": _tan, "tanh": _tanh, "power": _power,
    "rsqrt": _reciprocal_root, "sign": _direction, "is_finite": _is_finite,
}  # fmt: skip
# Ops that act on real and imaginary parts separately.
_COMPONENTWISE = (
    *("negate", "select", "broadcast_in_dim", "reshape", "transpose", "slice", "concatenate", "reverse", "pad"),
    *("dynamic_slice", "dynamic_update_slice", "gather", "scatter", "reduce", "reduce_window"),
)
_REAL = {
    name.removeprefix("stablehlo."): rule
    for family in (elementwise, data_movement, gather_scatter, contraction_reduction, window_reduction)
    for name, rule in family.OPERATORS.items()
}


def _of_arrays(function: Callable[..., Any]) -> Converter:
    def converted(node: StableHloNode) -> StableHloValue:
        return node.value(function(*node.arrays))

    return converted


def _componentwise(rule: Converter) -> Converter:
    def convert_components(node: StableHloNode) -> StableHloValue:
        for region in node.op.regions:
            if binary_op(region) != "add" and returned(region) != (region.arguments[-1].name,):
                raise node.unsupported("a reduction of complex numbers other than a sum is not supported")

        def part(k: int) -> Tracer:
            result = rule(node.from_parts(*(real_and_imaginary(v)[k] if isinstance(v, Complex) else v for v in node.values)))
            return node.array(result[0] if isinstance(result, Sequence) else result)

        return Complex(part(0), part(1))

    return convert_components


def _bilinear(rule: Converter) -> Converter:
    """Compose a bilinear op from real ones: (a + b·i)·(c + d·i) = (a·c - b·d) + (a·d + b·c)·i."""

    def convert_products(node: StableHloNode) -> StableHloValue:
        (a, b), (c, d) = (real_and_imaginary(v) for v in node.values)

        def product(x: Any, y: Any) -> Tracer:
            return node.array(rule(node.from_parts(x, y)))

        real = dnp.subtract(product(a, c), product(b, d))
        return Complex(real, dnp.add(product(a, d), product(b, c)))

    return convert_products


def _compare(node: StableHloNode) -> StableHloValue:
    equal = node.keyword(("EQ", "NE"), "comparison_direction") == "EQ"
    return node.value((operator.eq if equal else operator.ne)(*node.arrays))


def _convert(node: StableHloNode) -> StableHloValue:
    """Convert real numbers to complex, change the precision, or drop the imaginary part, also for booleans."""
    (x,) = node.arrays
    real, imag = real_and_imaginary(x) if isinstance(x, Complex) else (x, dnp.zeros_like(x))
    if node.op.types[0].component is None:
        return elementwise.convert(node.from_parts(real))
    return Complex(*(node.array(elementwise.convert(node.from_parts(component))) for component in (real, imag)))


def fft(node: StableHloNode) -> StableHloValue:
    """Transform along the last axes."""
    (x,) = node.arrays
    lengths = node.integers("length", "fft_length")
    kind = node.keyword(tuple(_TRANSFORMS), "type", "fft_type")
    return node.value(_TRANSFORMS[kind](x, lengths, tuple(range(x.ndim - len(lengths), x.ndim))))


_TRANSFORMS: dict[str, Callable[..., Any]] = {
    "FFT": dnp.fft.fftn, "IFFT": dnp.fft.ifftn, "RFFT": dnp.fft.rfftn, "IRFFT": dnp.fft.irfftn,
}  # fmt: skip

OPERATORS: dict[str, Converter] = {
    **{f"stablehlo.{name}": _of_arrays(function) for name, function in _FUNCTIONS.items()},
    "chlo.sinh": _of_arrays(_sinh),
    "chlo.cosh": _of_arrays(_cosh),
    **{f"stablehlo.{name}": _componentwise(_REAL[name]) for name in _COMPONENTWISE},
    **{f"stablehlo.{name}": _bilinear(_REAL[name]) for name in ("dot_general", "convolution")},
    **dict.fromkeys(("stablehlo.optimization_barrier", "sdy.sharding_constraint"), lambda node: node.values),
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.fft": fft,
    "stablehlo.sort": sorting.sort,
}

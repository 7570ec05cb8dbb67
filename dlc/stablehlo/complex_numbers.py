"""Ops on complex arrays, which are pairs of real arrays, and Fourier transforms."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import dlc.numpy as dnp
from dlc.frontend.complex_numbers import Complex, from_parts, real_and_imaginary
from dlc.frontend.trace import Tracer
from dlc.stablehlo import contraction_reduction, data_movement, elementwise, gather_scatter, sorting, window_reduction
from dlc.stablehlo.body_numbering import binary_op, returned
from dlc.stablehlo.node import (
    Converter,
    StableHloNode,
    StableHloValue,
    flatten_complex,
    has_type,
    leaf_types,
    unflatten_complex,
)
from dlc.stablehlo.shardings import sharding_constraint
from dlc.stablehlo.syntax import Region


def _reciprocal_root(x: Any) -> Any:
    return 1 / dnp.sqrt(x)


def _is_finite(x: Any) -> Any:
    return dnp.logical_and(*map(dnp.isfinite, real_and_imaginary(x)))


def _logistic(x: Any) -> Any:
    return 1 / (1 + dnp.exp(-x))


def _cube_root(x: Any) -> Any:
    """exp(log(x) / 3); 0 for 0."""
    is_zero = dnp.equal(dnp.abs(x), 0)
    real, imag = (dnp.where(is_zero, 0, part) for part in real_and_imaginary(dnp.exp(dnp.log(x) / 3)))
    return from_parts(real, imag)


def _atan2(y: Any, x: Any) -> Any:
    """-i·log((x + i·y) / √(x² + y²))"""
    real, imag = real_and_imaginary(dnp.log((x + 1j * y) / dnp.sqrt(x * x + y * y)))
    return from_parts(imag, -real)


def _extremum(is_beyond: Callable[..., Any]) -> Callable[..., Any]:
    """Compare the real parts, and the imaginary parts of equal ones."""

    def choose(x: Any, y: Any) -> Any:
        (a, b), (c, d) = map(real_and_imaginary, (x, y))
        is_first = is_beyond(a, c) | (dnp.equal(a, c) & is_beyond(b, d))
        return from_parts(dnp.where(is_first, a, c), dnp.where(is_first, b, d))

    return choose


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "abs": dnp.abs, "real": dnp.real, "imag": dnp.imag, "complex": from_parts,
    "exponential": dnp.exp, "log": dnp.log, "sqrt": dnp.sqrt,
    "exponential_minus_one": dnp.expm1, "log_plus_one": dnp.log1p, "tan": dnp.tan, "tanh": dnp.tanh, "power": dnp.power,
    "rsqrt": _reciprocal_root, "sign": dnp.sign, "is_finite": _is_finite, "cosine": dnp.cos, "sine": dnp.sin,
    "logistic": _logistic, "cbrt": _cube_root, "atan2": _atan2,
    "maximum": _extremum(dnp.greater), "minimum": _extremum(dnp.less),
}  # fmt: skip
_CHLO_FUNCTIONS = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan")
# Ops that act on real and imaginary parts separately.
_COMPONENTWISE = (
    *("negate", "select", "broadcast_in_dim", "reshape", "transpose", "slice", "concatenate", "reverse", "pad"),
    *("dynamic_slice", "dynamic_update_slice", "gather", "scatter"),
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
        if not all(map(_is_componentwise, node.op.regions)):
            raise node.unsupported("an update of complex numbers other than a sum is not supported")

        def part(k: int) -> Tracer:
            result = rule(node.from_parts(*(real_and_imaginary(v)[k] if isinstance(v, Complex) else v for v in node.values)))
            return node.array(result[0] if isinstance(result, Sequence) else result)

        return Complex(part(0), part(1))

    return convert_components


def _is_componentwise(region: Region) -> bool:
    """Return whether the body of a reduction is a sum, or returns its second argument."""
    return binary_op(region) == "add" or returned(region) == (region.arguments[-1].name,)


def _reduction(rule: Converter) -> Converter:
    """Reduce sums of complex arrays by their parts, and with another body both parts together."""
    of_parts = _componentwise(rule)

    def convert_reduction(node: StableHloNode) -> StableHloValue | Sequence[StableHloValue]:
        (region,) = node.op.regions
        if len(node.values) == 2 and _is_componentwise(region):
            return of_parts(node)

        def inline(body: Region, leaves: Sequence[StableHloValue]) -> Sequence[StableHloValue]:
            arguments = unflatten_complex([a.type for a in body.arguments], iter(map(node.value, leaves)), node.trace)
            return list(flatten_complex(node.inline(body, arguments)))

        op = replace(node.op, types=tuple(leaf_types(node.op.types)))
        reduced = rule(StableHloNode(op, flatten_complex(node.values), node.trace, inline, node.where))
        results = reduced if isinstance(reduced, Sequence) else [reduced]
        return unflatten_complex(node.op.types, iter(map(node.value, results)), node.trace)

    return convert_reduction


def _bitcast(node: StableHloNode) -> StableHloValue:
    (x,), component = node.values, node.op.types[0].component
    if component is None or not isinstance(x, Complex) or not has_type(node.trace.value(x.real).value, component, node.where):
        raise node.unsupported("a bitcast of complex numbers to another type is not supported")
    return x


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


def _iota(node: StableHloNode) -> StableHloValue:
    real = node.array(_REAL["iota"](node.from_parts()))
    return node.value(from_parts(real, dnp.zeros_like(real)))


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
    **{f"chlo.{name}": _of_arrays(getattr(dnp, name)) for name in _CHLO_FUNCTIONS},
    "chlo.conj": _of_arrays(dnp.conj),
    **{f"stablehlo.{name}": _componentwise(_REAL[name]) for name in _COMPONENTWISE},
    **{f"stablehlo.{name}": _reduction(_REAL[name]) for name in ("reduce", "reduce_window")},
    "stablehlo.bitcast_convert": _bitcast,
    **{f"stablehlo.{name}": _bilinear(_REAL[name]) for name in ("dot_general", "convolution")},
    "stablehlo.optimization_barrier": lambda node: node.values,
    "sdy.sharding_constraint": _componentwise(sharding_constraint),
    "stablehlo.compare": _compare,
    "stablehlo.iota": _iota,
    "stablehlo.convert": _convert,
    "stablehlo.fft": fft,
    "stablehlo.sort": sorting.sort,
}

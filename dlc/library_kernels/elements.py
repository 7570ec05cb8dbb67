"""Elements of matrices in factorizations: real values, or complex ones as pairs of them.

The loops of a factorization are the same for both: its arrays are references to real elements or a `ComplexReference`, and its
arithmetic is the operators and these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import dlc.kernels as k
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.shapes.traced_dims import TracedSize


@dataclass(frozen=True, eq=False)
class ComplexValue:
    """A complex scalar, or a vector of them. The other operand of an operator may be real."""

    real: Value
    imag: Value

    def __neg__(self) -> ComplexValue:
        return ComplexValue(-self.real, -self.imag)

    def __add__(self, other: ComplexValue) -> ComplexValue:
        return ComplexValue(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Element) -> ComplexValue:
        if isinstance(other, ComplexValue):
            return ComplexValue(self.real - other.real, self.imag - other.imag)
        return ComplexValue(self.real - other, self.imag)

    def __mul__(self, other: Element | float) -> ComplexValue:
        if isinstance(other, ComplexValue):
            real = k.fma(self.real, other.real, -(self.imag * other.imag))
            return ComplexValue(real, k.fma(self.real, other.imag, self.imag * other.real))
        return ComplexValue(self.real * other, self.imag * other)

    def __truediv__(self, other: Element) -> ComplexValue:
        """Divide by Smith's method (Communications of the ACM 5, 1962), which does not overflow in a square."""
        if not isinstance(other, ComplexValue):
            return ComplexValue(self.real / other, self.imag / other)
        real_is_larger = k.absolute(other.real) >= k.absolute(other.imag)
        larger, smaller = (k.select(real_is_larger, *parts) for parts in (_parts(other), reversed(_parts(other))))
        ratio = smaller / larger
        divisor = k.fma(smaller, ratio, larger)

        def quotient(x: Value, y: Value) -> Value:
            """Return (x + y·ratio) / divisor, or (x·ratio + y) / divisor if the imaginary part of the divisor is larger."""
            first, second = k.select(real_is_larger, x, y), k.select(real_is_larger, y, x)
            return k.fma(second, ratio, first) / divisor

        imag = quotient(self.imag, -self.real)
        return ComplexValue(quotient(self.real, self.imag), imag)


# A real or complex scalar or vector.
Element: TypeAlias = "Value | ComplexValue"


@dataclass(frozen=True, eq=False)
class ComplexReference:
    """A complex array, as references to its real and its imaginary parts. `dtype` is that of the parts."""

    real: ArrayReference
    imag: ArrayReference

    @property
    def shape(self) -> tuple[TracedSize, ...]:
        return self.real.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.real.dtype

    def __getitem__(self, indices: Any) -> Any:
        real, imag = self.real[indices], self.imag[indices]
        return ComplexValue(real, imag) if isinstance(real, Value) else ComplexReference(real, imag)

    def __setitem__(self, indices: Any, value: Element | float) -> None:
        for part, part_value in zip(planes(self), _parts(value), strict=True):
            part[indices] = part_value

    def load(self, *indices: Any, width: int, fill: float) -> ComplexValue:
        return ComplexValue(*(part.load(*indices, width=width, fill=fill) for part in planes(self)))

    def store(self, *indices: Any, value: ComplexValue, masked: bool) -> None:
        for part, part_value in zip(planes(self), _parts(value), strict=True):
            part.store(*indices, value=part_value, masked=masked)


# A real or complex array.
Reference: TypeAlias = "ArrayReference | ComplexReference"


class _ComplexVariable:
    """A mutable complex variable."""

    def __init__(self, value: ComplexValue) -> None:
        self._parts = [k.variable(part) for part in _parts(value)]

    @property
    def value(self) -> ComplexValue:
        return ComplexValue(*(part.value for part in self._parts))

    @value.setter
    def value(self, value: ComplexValue) -> None:
        for part, part_value in zip(self._parts, _parts(value), strict=True):
            part.value = part_value


def _parts(x: Element | float) -> tuple[Any, Any]:
    return (x.real, x.imag) if isinstance(x, ComplexValue) else (x, 0)


def planes(x: Reference) -> Sequence[ArrayReference]:
    """Return the arrays of the real, and for complex elements the imaginary parts."""
    return (x.real, x.imag) if isinstance(x, ComplexReference) else (x,)


def full(x: Reference, width: int, value: float) -> Any:
    """Return a vector of equal real numbers, with elements as those of `x`."""
    parts = [k.full(width, number, x.dtype) for number in (value, 0)[: len(planes(x))]]
    return ComplexValue(*parts) if len(parts) > 1 else parts[0]


def variable(x: Element) -> Any:
    """Return a mutable variable with this initial value."""
    return _ComplexVariable(x) if isinstance(x, ComplexValue) else k.variable(x)


def select(condition: Value, x: Element | float, y: Element | float) -> Any:
    """Return `x` where the condition holds, else `y`."""
    if isinstance(x, ComplexValue) or isinstance(y, ComplexValue):
        return ComplexValue(*(k.select(condition, a, b) for a, b in zip(_parts(x), _parts(y), strict=True)))
    return k.select(condition, x, y)


def fma(x: Element, y: Element, z: Any) -> Any:
    """Return x · y + z; each term of a complex result is rounded once if the target has the instruction."""
    if isinstance(x, Value):
        return k.fma(x, y, z) if isinstance(y, Value) else fma(y, x, z)
    if isinstance(y, Value):
        return ComplexValue(k.fma(x.real, y, z.real), k.fma(x.imag, y, z.imag))
    real = k.fma(x.real, y.real, k.fma(-x.imag, y.imag, z.real))
    return ComplexValue(real, k.fma(x.real, y.imag, k.fma(x.imag, y.real, z.imag)))


def conj(x: Any) -> Any:
    """Return the complex conjugate; a real value itself."""
    return ComplexValue(x.real, -x.imag) if isinstance(x, ComplexValue) else x


def real_part(x: Element) -> Value:
    return x.real if isinstance(x, ComplexValue) else x


def imaginary_part(x: Element) -> Value | None:
    """Return the imaginary part; None for a real value."""
    return x.imag if isinstance(x, ComplexValue) else None


def magnitude(x: Element) -> Value:
    """Return |x|, for complex a + b·i the estimate |a| + |b|, which is at most √2 times as large."""
    return k.absolute(x.real) + k.absolute(x.imag) if isinstance(x, ComplexValue) else k.absolute(x)


def modulus(x: Element) -> Value:
    """Return |x| of a number whose square neither overflows nor underflows."""
    return k.sqrt(k.fma(x.real, x.real, x.imag * x.imag)) if isinstance(x, ComplexValue) else k.absolute(x)


def larger_part(x: Element) -> Value:
    """Return |x|, for complex a + b·i max(|a|, |b|)."""
    return k.maximum(k.absolute(x.real), k.absolute(x.imag)) if isinstance(x, ComplexValue) else k.absolute(x)


def is_zero(x: Element) -> Value:
    return (x.real == 0) & (x.imag == 0) if isinstance(x, ComplexValue) else x == 0


def dot_terms(x: Element, y: Element) -> list[list[tuple[Value, Value]]]:
    """Return the products of real values that add up to conj(x)·y: those of the real, and those of the imaginary part."""
    if isinstance(x, ComplexValue) and isinstance(y, ComplexValue):
        return [[(x.real, y.real), (x.imag, y.imag)], [(x.real, y.imag), (-x.imag, y.real)]]
    assert isinstance(x, Value) and isinstance(y, Value)
    return [[(x, y)]]

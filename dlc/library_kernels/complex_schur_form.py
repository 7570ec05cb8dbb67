"""Schur forms of complex matrices, by QR steps with one shift, and their eigenvectors.

Source: Golub and Van Loan, Matrix Computations, 7.5 and 7.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dlc.kernels as k
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.kernels.variables import Variable
from dlc.library_kernels.eigenvalues import epsilon
from dlc.library_kernels.elements import (
    ComplexValue,
    conj,
    fma,
    full,
    is_zero,
    larger_part,
    magnitude,
    modulus,
    select,
    variable,
)
from dlc.library_kernels.schur_form import SchurForm, smallest_divisor
from dlc.library_kernels.vectors import columns, dots, load, store, update


@dataclass(frozen=True)
class ComplexSchurForm(SchurForm):
    """The upper triangular Schur form of a complex matrix."""

    def reduce_block(self, first: Value, last: Value, num_active: Variable, num_steps: Variable, is_stuck: Value) -> None:
        """Apply an implicit QR step, in which rotations of two rows and columns chase an element below the subdiagonal."""
        h, size = self.h, self.size
        previous = k.assume_index(last - 1, size)
        exceptional_shift = h[last, last] + ComplexValue(magnitude(h[last, previous]) * 0.75, 0 * self.norm)
        shift = select(is_stuck, exceptional_shift, self._wilkinson_shift(previous, last))
        f, g = variable(h[first, first] - shift), variable(h[k.assume_index(first + 1, size), first])
        for t in k.range(first, last):
            i, j = k.assume_index(t, size), k.assume_index(t + 1, size)
            before, after = k.assume_index(k.maximum(t - 1, 0), size), k.assume_index(k.minimum(t + 2, last), size)
            unit = k.maximum(larger_part(f.value), larger_part(g.value))
            with k.when(unit != 0):
                a, b = f.value / unit, g.value / unit
                abs_a, abs_b = modulus(a), modulus(b)
                length = k.sqrt(k.fma(abs_a, abs_a, abs_b * abs_b))
                phase = select(abs_a == 0, 1, a / k.select(abs_a == 0, 1, abs_a))
                cosine, sine = abs_a / length, phase * conj(b) / length
                self._rotate(i, j, after, cosine, sine)
                with k.when(t > first):
                    h[i, before] = phase * (length * unit)
                    h[j, before] = 0
            with k.when(t + 1 < last):
                f.value, g.value = h[j, i], h[after, i]

    def _wilkinson_shift(self, i: Value, j: Value) -> ComplexValue:
        """Return the eigenvalue of the block of rows i and j that is closer to its last element."""
        h = self.h
        product, half_difference = h[i, j] * h[j, i], (h[i, i] - h[j, j]) * 0.5
        root = _square_root(half_difference * half_difference + product)
        is_opposite = half_difference.real * root.real + half_difference.imag * root.imag < 0
        divisor = half_difference + select(is_opposite, -root, root)
        correction = product / select(is_zero(divisor), 1, divisor)
        return h[j, j] - select(is_zero(divisor), 0 * product.real, correction)

    def _rotate(self, i: Value, j: Value, end: Value, cosine: Value, sine: ComplexValue) -> None:
        """Multiply rows i and j of h and the basis by [[c, s], [-conj s, c]], and columns of h by its conjugate transpose."""
        h, size = self.h, self.size

        def rotated(vectors: Sequence[Any]) -> list[Any]:
            x, y = vectors
            return [fma(cosine, x, y * sine), fma(cosine, y, -(x * conj(sine)))]

        update(rotated, h[i], h[j], first=i)
        for p in k.range(end + 1):
            row = k.assume_index(p, size)
            x, y = h[row, i], h[row, j]
            h[row, i] = fma(cosine, x, y * conj(sine))
            h[row, j] = fma(cosine, y, -(x * sine))
        if self.basis is not None:
            update(rotated, self.basis[i], self.basis[j])

    def eigenvectors(self, factor: Value, vectors: Sequence[ArrayReference], work_rows: Any) -> None:
        """Compute the eigenvectors by back substitution, in which a work row holds the conjugate of a solution."""
        h, size, dtype, solution = self.h, self.size, self.h.dtype, work_rows[0]
        smallest = smallest_divisor(self.norm, dtype)
        for i in k.range(size):
            eigenvalue = ComplexValue(self.real[i] * factor, self.imag[i] * factor)
            for j in k.range(size):
                solution[j] = 0
            solution[i] = 1
            for t in k.range(i):
                row = k.assume_index(i - 1 - t, size)
                (product,) = dots(h[row], [solution])
                difference = eigenvalue - h[row, row]
                divisor = select(magnitude(difference) < smallest, smallest, difference)
                value = conj(product) / divisor
                solution[row] = conj(value)
                greatest = magnitude(value)
                # Products of large elements would overflow.
                with k.when(greatest > 1 / epsilon(dtype)):
                    update(lambda elements, greatest=greatest: [elements[0] / greatest], solution)
            for j, w in columns(0, size, dtype):
                total = variable(full(h, w, 0))
                for m in k.range(i + 1):
                    total.value = fma(solution[m], load(self.basis, m, j, width=w), total.value)
                store(vectors[0], i, j, value=total.value.real)
                store(vectors[1], i, j, value=-total.value.imag)


def _square_root(x: ComplexValue) -> ComplexValue:
    """Return a square root of a number whose square neither overflows nor underflows."""
    larger = k.sqrt((modulus(x) + k.absolute(x.real)) * 0.5)
    smaller = x.imag * 0.5 / k.select(larger == 0, 1, larger)
    is_right = x.real >= 0
    return ComplexValue(k.select(is_right, larger, smaller), k.select(is_right, smaller, larger))

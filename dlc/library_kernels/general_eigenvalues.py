"""Eigenvalues and eigenvectors of general matrices.

Householder reflections make the matrix upper Hessenberg. Implicit double-shift QR steps (Francis) make a real matrix
quasi-triangular: a real Schur form, with diagonal blocks of one real eigenvalue or of two conjugate ones. Its eigenvectors are
computed by back substitution in complex arithmetic, in which the imaginary parts that belong to real eigenvalues stay 0.
Source: Golub and Van Loan, Matrix Computations, 7.4 to 7.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dlc.kernels as k
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.kernels.variables import Variable
from dlc.library_kernels.complex_schur_form import ComplexSchurForm
from dlc.library_kernels.eigenvalues import copy_scaled, epsilon, rotate, set_identity, sort_rows
from dlc.library_kernels.elements import ComplexReference, ComplexValue, Reference, larger_part, magnitude, planes, select
from dlc.library_kernels.elimination import fill
from dlc.library_kernels.schur_form import SchurForm, smallest_divisor
from dlc.library_kernels.vectors import best_index, columns, dots, if_size, largest, load, store, update


def eig(
    x: Reference,
    real: ArrayReference,
    imag: ArrayReference,
    vectors_real: ArrayReference,
    vectors_imag: ArrayReference,
    work: Any,
    work_rows: Any,
    *,
    with_vectors: bool,
) -> None:
    """Compute the eigenvalues of a matrix, and eigenvectors of length 1 as rows, with a positive largest element."""
    size, dtype, vectors = x.shape[0], x.dtype, (vectors_real, vectors_imag)
    h, basis = work[0], work[1]
    fill(work_rows, 0)
    factor, inverse_scale = copy_scaled(x, h)
    set_identity(basis)
    finite_sum, norm = k.variable(0, dtype), k.variable(0, dtype)
    for i in k.range(size):
        norm.value = k.maximum(norm.value, largest(0, size, dtype, lambda j, w, i=i: larger_part(load(h, i, j, width=w))))
        for part in planes(h):
            for j in k.range(size):
                finite_sum.value += part[i, j] * 0
    form = ComplexSchurForm if isinstance(x, ComplexReference) else _RealSchurForm
    schur = form(h, basis if with_vectors else None, real, imag, norm.value)
    schur.reduce_to_hessenberg(*(work_rows[i] for i in range(3)))
    num_active = k.variable(size, size=size + 1)
    with k.when(finite_sum.value == 0):
        schur.iterate(num_active)
    is_converged = num_active.value == 0
    for i in k.range(size):
        real[i] = k.select(is_converged, real[i] * inverse_scale, float("nan"))
        imag[i] = k.select(is_converged, imag[i] * inverse_scale, float("nan"))
    if with_vectors:
        with k.when(is_converged):
            schur.eigenvectors(factor, vectors, work_rows)
            for i in k.range(size):
                _normalize(vectors_real[i], vectors_imag[i])
        with k.when(~is_converged):
            for part in vectors:
                fill(part, float("nan"))
    sort_rows([real, imag], _is_before, vectors if with_vectors else ())
    for matrix in (h, basis, work_rows):
        fill(matrix, 0)


def _is_before(x: Sequence[Value], y: Sequence[Value]) -> Value:
    """Compare complex numbers by their real, then by their imaginary parts."""
    return (x[0] < y[0]) | ((x[0] == y[0]) & (x[1] < y[1]))


@dataclass(frozen=True)
class _RealSchurForm(SchurForm):
    """The quasi-triangular Schur form of a real matrix."""

    def reduce_block(self, first: Value, last: Value, num_active: Variable, num_steps: Variable, is_stuck: Value) -> None:
        size = self.size
        for _ in if_size(size, 2):
            with k.when(first + 1 == last):
                previous = k.assume_index(first, size - 1)
                self._split_block(previous)
                num_active.value = previous
                num_steps.value = 0
        for _ in if_size(size, 3):
            with k.when(first + 1 < last):
                self._double_shift_step(first, k.assume_index(last - 2, size - 2), is_stuck)

    def _split_block(self, i: Value) -> None:
        """Store the eigenvalues of the block of rows i and i + 1; if they are real, rotate it to be triangular."""
        h, size, j = self.h, self.size, i + 1
        a, d, product = h[i, i], h[j, j], h[i, j] * h[j, i]
        half_difference = (a - d) * 0.5
        discriminant = k.fma(half_difference, half_difference, product)
        root = k.sqrt(k.absolute(discriminant))
        with k.when(discriminant < 0):
            for row, sign in ((i, 1), (j, -1)):
                self.real[row] = d + half_difference
                self.imag[row] = root * sign
        with k.when(discriminant >= 0):
            shift = half_difference + k.copysign(root, half_difference)
            self.real[i] = d + shift
            self.real[j] = k.select(shift == 0, d, d - product / k.select(shift == 0, 1, shift))
            self.imag[i] = 0
            self.imag[j] = 0
            below = h[j, i]
            unit = 1 / k.maximum(k.absolute(below), k.absolute(shift))
            sine, cosine = below * unit, shift * unit
            length = k.sqrt(sine * sine + cosine * cosine)
            sine, cosine = sine / length, cosine / length
            rotate(h, j, i, cosine, sine, i)
            for p in k.range(j + 1):
                row = k.assume_index(p, size)
                first, second = h[row, i], h[row, j]
                h[row, i] = cosine * first + sine * second
                h[row, j] = cosine * second - sine * first
            h[j, i] = 0
            if self.basis is not None:
                rotate(self.basis, j, i, cosine, sine)

    def _double_shift_step(self, first: Value, row: Value, is_exceptional: Value) -> None:
        """Apply an implicit QR step to the block from `first` to `row` + 2, shifted by the eigenvalues of its last 2 × 2."""
        h, size = self.h, self.size
        previous, last = row + 1, row + 2
        s = k.absolute(h[last, previous]) + k.absolute(h[previous, row])
        exceptional_shift = k.fma(s, 0.75, h[last, last])
        x = k.select(is_exceptional, exceptional_shift, h[last, last])
        y = k.select(is_exceptional, exceptional_shift, h[previous, previous])
        w = k.select(is_exceptional, s * s * -0.4375, h[last, previous] * h[previous, last])
        start, second, third = (k.assume_index(first + offset, size) for offset in range(3))
        corner = h[start, start]
        # The first column of (h - shift)·(h - other shift), divided by a subdiagonal element.
        p = k.variable(k.fma(x - corner, y - corner, -w) / h[second, start] + h[start, second])
        q = k.variable(h[second, second] - corner - (x - corner) - (y - corner))
        r = k.variable(h[third, second])
        for i in k.range(first, last):
            i0, i1 = k.assume_index(i, size), k.assume_index(i + 1, size)
            # The last reflection has two rows: its third element is 0, and its third row stays unchanged.
            has_third = i + 1 < last
            i2 = k.assume_index(k.select(has_third, i + 2, i + 1), size)
            with k.when(i > first):
                before = k.assume_index(i - 1, size)
                p.value, q.value = h[i0, before], h[i1, before]
                r.value = k.select(has_third, h[i2, before], 0)
            total = k.absolute(p.value) + k.absolute(q.value) + k.absolute(r.value)
            with k.when(total != 0):
                a, b, c = p.value / total, q.value / total, r.value / total
                length = k.copysign(k.sqrt(a * a + b * b + c * c), a)
                sum_ = a + length
                self._apply_reflection((i0, i1, i2), (sum_ / length, b / length, c / length), (b / sum_, c / sum_), last)
                with k.when(i > first):
                    before = k.assume_index(i - 1, size)
                    h[i0, before] = -length * total
                    h[i1, before] = 0
                    with k.when(has_third):
                        h[i2, before] = 0

    def _apply_reflection(
        self, rows: tuple[Value, Value, Value], u: tuple[Value, Value, Value], v: tuple[Value, Value], last: Value
    ) -> None:
        """Apply the reflection 1 - u·(1, v)ᵀ to three rows of h, and its transpose to the columns and the basis."""
        h, size = self.h, self.size

        def reflect_rows(vectors: Sequence[Value]) -> list[Value]:
            c, b, a = vectors
            product = a + v[0] * b + v[1] * c
            return [c - product * u[2], b - product * u[1], a - product * u[0]]

        def reflect_columns(vectors: Sequence[Value]) -> list[Value]:
            c, b, a = vectors
            product = u[0] * a + u[1] * b + u[2] * c
            return [c - product * v[1], b - product * v[0], a - product]

        # The third row may be the second one, so that it is stored first.
        update(reflect_rows, *(h[i] for i in reversed(rows)), first=rows[0])
        for p in k.range(k.minimum(rows[0] + 3, last) + 1):
            i = k.assume_index(p, size)
            for j, value in zip(reversed(rows), reflect_columns([h[i, j] for j in reversed(rows)]), strict=True):
                h[i, j] = value
        if self.basis is not None:
            update(reflect_columns, *(self.basis[i] for i in reversed(rows)))

    def eigenvectors(self, factor: Value, vectors: Sequence[ArrayReference], work_rows: Any) -> None:
        """Compute the eigenvectors by back substitution; the second one of a conjugate pair is the conjugate of the first."""
        h, size, dtype, solution = self.h, self.size, self.h.dtype, (work_rows[0], work_rows[1])
        smallest = smallest_divisor(self.norm, dtype)
        for i in k.range(size):
            eigenvalue = ComplexValue(self.real[i] * factor, self.imag[i] * factor)
            with k.when(eigenvalue.imag >= 0):
                for part in solution:
                    for j in k.range(size):
                        part[j] = 0
                end = k.assume_index(k.select(eigenvalue.imag > 0, i + 1, i), size)
                solution[0][i] = 1
                for _ in if_size(size, 2):
                    with k.when(eigenvalue.imag > 0):
                        _start_in_block(h, eigenvalue, k.assume_index(i, size - 1), solution)
                _substitute_back(h, eigenvalue, i, end, solution, smallest)
                for output, part in zip(vectors, solution, strict=True):
                    for j, w in columns(0, size, dtype):
                        total = k.variable(k.full(w, 0, dtype))
                        for m in k.range(end + 1):
                            row = k.assume_index(m, size)
                            total.value = k.fma(part[row], load(self.basis, row, j, width=w), total.value)
                        store(output, i, j, value=total.value)
                with k.when(eigenvalue.imag > 0):
                    for j in k.range(size):
                        vectors[0][end, j] = vectors[0][i, j]
                        vectors[1][end, j] = -vectors[1][i, j]


def _start_in_block(
    h: ArrayReference, eigenvalue: ComplexValue, i: Value, solution: tuple[ArrayReference, ArrayReference]
) -> None:
    """Set the elements i and i + 1 of an eigenvector to one of their diagonal block."""
    j = i + 1
    is_lower_larger = k.absolute(h[j, i]) >= k.absolute(h[i, j])
    # From the row with the larger element next to the diagonal: h_ji·y_i = (λ - h_jj)·y_j, or h_ij·y_j = (λ - h_ii)·y_i.
    divisor = k.select(is_lower_larger, h[j, i], h[i, j])
    diagonal = k.select(is_lower_larger, h[j, j], h[i, i])
    ratio = ComplexValue((eigenvalue.real - diagonal) / divisor, eigenvalue.imag / divisor)
    for part, value, one in zip(solution, (ratio.real, ratio.imag), (1.0, 0.0), strict=True):
        part[i] = k.select(is_lower_larger, value, one)
        part[j] = k.select(is_lower_larger, one, value)


def _substitute_back(
    h: ArrayReference,
    eigenvalue: ComplexValue,
    start: Value,
    end: Value,
    solution: tuple[ArrayReference, ArrayReference],
    smallest: Value,
) -> None:
    """Solve (h - λ)·y = 0 for the elements before `start`, given those from `start` to `end`."""
    size, dtype = h.shape[0], h.dtype

    def residual(row: Value) -> ComplexValue:
        """Return -Σ h_rj·y_j over the elements after the row, which alone are not 0."""
        real, imag = dots(h[row], solution)
        return ComplexValue(-real, -imag)

    def set_element(row: Value, value: ComplexValue) -> None:
        solution[0][row], solution[1][row] = value.real, value.imag

    for t in k.range(start):
        row = k.assume_index(start - 1 - t, size)
        before, after = k.assume_index(k.maximum(row - 1, 0), size), k.assume_index(k.minimum(row + 1, size - 1), size)
        is_block_end = (row > 0) & (h[row, before] != 0)
        is_block_start = (row < size - 1) & (h[after, row] != 0)
        value = ComplexValue(h[row, row] - eigenvalue.real, -eigenvalue.imag)
        with k.when(~(is_block_end | is_block_start)):
            set_element(row, _quotient(residual(row), value, smallest))
        with k.when(is_block_end):
            first_value = ComplexValue(h[before, before] - eigenvalue.real, -eigenvalue.imag)
            upper, lower = h[before, row], h[row, before]
            product = first_value * value
            determinant = ComplexValue(product.real - upper * lower, product.imag)
            first, second = residual(before), residual(row)
            smallest_determinant = smallest * smallest
            set_element(before, _quotient(value * first - second * upper, determinant, smallest_determinant))
            set_element(row, _quotient(first_value * second - first * lower, determinant, smallest_determinant))
        greatest = k.maximum(*(magnitude(ComplexValue(solution[0][r], solution[1][r])) for r in (row, before)))
        # Products of large elements would overflow.
        with k.when(greatest > 1 / epsilon(dtype)):
            for part in solution:
                update(lambda vectors, greatest=greatest: [vectors[0] / greatest], part)


def _quotient(x: ComplexValue, divisor: ComplexValue, smallest: Value) -> ComplexValue:
    """Return the quotient; a divisor that is smaller than `smallest` is replaced by it."""
    return x / select(magnitude(divisor) < smallest, smallest, divisor)


def _normalize(real: ArrayReference, imag: ArrayReference) -> None:
    """Scale a complex vector to length 1, with a largest element that is positive."""
    (size,), dtype = real.shape, real.dtype
    greatest = largest(
        0, size, dtype, lambda j, w: k.maximum(k.absolute(load(real, j, width=w)), k.absolute(load(imag, j, width=w)))
    )
    for part in (real, imag):
        update(lambda vectors: [vectors[0] / greatest], part)
    (best,), position = best_index(0, size, lambda j: [real[j] * real[j] + imag[j] * imag[j]], lambda a, b: a[0] > b[0])
    square_sum = dots(real, [real])[0] + dots(imag, [imag])[0]
    length = 1 / (k.sqrt(square_sum) * k.sqrt(best))
    rotation = ComplexValue(real[position] * length, -imag[position] * length)

    def rotated(parts: Sequence[Value]) -> tuple[Value, Value]:
        product = ComplexValue(parts[0], parts[1]) * rotation
        return product.real, product.imag

    update(rotated, real, imag)
    imag[position] = 0

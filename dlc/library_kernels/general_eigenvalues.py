"""Eigenvalues and eigenvectors of general real matrices.

Householder reflections make the matrix upper Hessenberg, and implicit double-shift QR steps (Francis) quasi-triangular: a real
Schur form, with diagonal blocks of one real eigenvalue or of two conjugate ones. Its eigenvectors are computed by back
substitution in complex arithmetic, in which the imaginary parts that belong to real eigenvalues stay 0. Source: Golub and
Van Loan, Matrix Computations, 7.4 to 7.6; exceptional shifts as in LAPACK's dlahqr.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import dlc.kernels as k
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.kernels.variables import Variable
from dlc.library_kernels.eigenvalues import copy_scaled, epsilon, rotate, set_identity, sort_rows
from dlc.library_kernels.elimination import fill
from dlc.library_kernels.reflections import REFLECTED_ROWS, reflect, reflection
from dlc.library_kernels.vectors import Index, best_index, columns, dots, groups, if_size, largest, load, store, update
from dlc.shapes.traced_dims import TracedSize

# Maximum QR steps per eigenvalue (about 1.5 are needed), and the number of steps without progress before an exceptional shift.
_MAX_QR_STEPS = 30
_STEPS_BEFORE_EXCEPTIONAL_SHIFT = 10


@dataclass(frozen=True)
class _Complex:
    """A complex value, or a row of them."""

    real: Value
    imag: Value

    def __sub__(self, other: _Complex) -> _Complex:
        return _Complex(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: _Complex) -> _Complex:
        return _Complex(self.real * other.real - self.imag * other.imag, self.real * other.imag + self.imag * other.real)

    def scaled(self, factor: Value) -> _Complex:
        return _Complex(self.real * factor, self.imag * factor)

    def magnitude(self) -> Value:
        """Return |x| + |y|, which is at most √2 times the magnitude of x + y·i."""
        return k.absolute(self.real) + k.absolute(self.imag)

    def over(self, divisor: _Complex, smallest: Value) -> _Complex:
        """Return the quotient; a divisor that is smaller than `smallest` is replaced by it."""
        is_tiny = divisor.magnitude() < smallest
        c, d = k.select(is_tiny, smallest, divisor.real), k.select(is_tiny, 0, divisor.imag)
        # Scale by the larger part: squares could overflow.
        unit = 1 / k.maximum(k.absolute(c), k.absolute(d))
        c, d = c * unit, d * unit
        return (self * _Complex(c, -d)).scaled(unit / (c * c + d * d))


def eig(
    x: ArrayReference,
    real: ArrayReference,
    imag: ArrayReference,
    vectors_real: ArrayReference,
    vectors_imag: ArrayReference,
    work: ArrayReference,
    work_rows: ArrayReference,
    *,
    with_vectors: bool,
) -> None:
    """Compute the eigenvalues of a matrix, and eigenvectors of length 1 as rows, with a positive largest element."""
    size, dtype = x.shape[0], x.dtype
    h, basis = work[0], work[1]
    fill(work_rows, 0)
    factor, inverse_scale = copy_scaled(x, h)
    set_identity(basis)
    finite_sum, norm = k.variable(0, dtype), k.variable(0, dtype)
    for i in k.range(size):
        norm.value = k.maximum(norm.value, largest(0, size, dtype, lambda j, w, i=i: k.absolute(load(h, i, j, width=w))))
        for j in k.range(size):
            finite_sum.value += h[i, j] * 0
    schur = _SchurForm(h, basis if with_vectors else None, real, imag, norm.value)
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
            _eigenvectors(schur, factor, vectors_real, vectors_imag, (work_rows[0], work_rows[1]))
        with k.when(~is_converged):
            for part in (vectors_real, vectors_imag):
                fill(part, float("nan"))
    sort_rows([real, imag], _is_before, (vectors_real, vectors_imag) if with_vectors else ())
    for matrix in (h, basis, work_rows):
        fill(matrix, 0)


def _is_before(x: Sequence[Value], y: Sequence[Value]) -> Value:
    """Compare complex numbers by their real, then by their imaginary parts."""
    return (x[0] < y[0]) | ((x[0] == y[0]) & (x[1] < y[1]))


@dataclass(frozen=True)
class _SchurForm:
    """A matrix h that is reduced to Schur form in place, and the transpose of the orthogonal basis, if it is needed.

    `real` and `imag` receive the eigenvalues.
    """

    h: ArrayReference
    basis: ArrayReference | None
    real: ArrayReference
    imag: ArrayReference
    norm: Value

    @property
    def size(self) -> TracedSize:
        return self.h.shape[0]

    def reduce_to_hessenberg(self, column: ArrayReference, v: ArrayReference, product: ArrayReference) -> None:
        """Eliminate the elements below the subdiagonal, column by column. The operands are work rows of zeros."""
        h, size = self.h, self.size
        for step in k.range(size - 2):
            first = step + 1
            for i in k.range(size):
                column[i] = h[i, step]
            scale, subdiagonal = reflection(column, first, v)
            for matrix in (h, *([] if self.basis is None else [self.basis])):
                _reflect_columns(matrix, v, scale, first, product)
            for rows in groups(0, size, REFLECTED_ROWS, size):
                reflect(h, rows, v, scale, first)
            h[first, step] = subdiagonal
            for i in k.range(first + 1, size):
                h[i, step] = 0

    def iterate(self, num_active: Variable) -> None:
        """Apply QR steps until all eigenvalues have converged; `num_active` leading rows and columns have not yet."""
        size = self.size
        num_steps = k.variable(0, np.int64)
        for _ in k.range(_MAX_QR_STEPS * size):
            with k.when(num_active.value > 0):
                last = k.assume_index(num_active.value - 1, size)
                first = self._block_start(last)
                num_steps.value += 1
                with k.when(first == last):
                    self.real[last] = self.h[last, last]
                    self.imag[last] = 0
                    num_active.value = last
                    num_steps.value = 0
                for _ in if_size(size, 2):
                    with k.when(first + 1 == last):
                        previous = k.assume_index(first, size - 1)
                        self._split_block(previous)
                        num_active.value = previous
                        num_steps.value = 0
                for _ in if_size(size, 3):
                    with k.when(first + 1 < last):
                        is_stuck = num_steps.value % _STEPS_BEFORE_EXCEPTIONAL_SHIFT == 0
                        self._double_shift_step(first, k.assume_index(last - 2, size - 2), is_stuck)

    def _block_start(self, last: Value) -> Value:
        """Return the first row of the block that ends at `last`; negligible subdiagonal elements become 0."""
        h, size = self.h, self.size
        start = k.variable(0, size=size)
        for i in k.range(last):
            row = k.assume_index(i + 1, size)
            neighbors = k.absolute(h[i, i]) + k.absolute(h[row, row])
            scale = k.select(neighbors == 0, self.norm, neighbors)
            with k.when(k.absolute(h[row, i]) <= scale * epsilon(h.dtype)):
                h[row, i] = 0
                start.value = row
        return start.value

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


def _reflect_columns(x: ArrayReference, v: ArrayReference, scale: Value, first: Index, product: ArrayReference) -> None:
    """Apply a reflection to the columns of x: x -= t·v·(vᵀ·x), where v is 0 before `first`; `product` is a work buffer."""
    size = x.shape[0]
    for j, w in columns(0, size, x.dtype):
        total = k.variable(k.full(w, 0, x.dtype))
        for i in k.range(first, size):
            total.value = k.fma(v[i], load(x, i, j, width=w), total.value)
        store(product, j, value=total.value * scale)
    for i in k.range(first, size):
        update(lambda vectors, factor=-v[i]: [k.fma(factor, vectors[1], vectors[0])], x[i], product)


def _eigenvectors(
    schur: _SchurForm,
    factor: Value,
    vectors_real: ArrayReference,
    vectors_imag: ArrayReference,
    solution: tuple[ArrayReference, ArrayReference],
) -> None:
    """Compute the eigenvectors from the Schur form; the second one of a conjugate pair is the conjugate of the first.

    The Schur form is that of the matrix times `factor`, `schur.real` and `schur.imag` are eigenvalues of the matrix.
    `solution` are two work rows.
    """
    h, size, dtype = schur.h, schur.size, schur.h.dtype
    smallest = k.maximum(schur.norm * epsilon(dtype), float(np.finfo(dtype).tiny))
    for i in k.range(size):
        eigenvalue = _Complex(schur.real[i] * factor, schur.imag[i] * factor)
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
            for output, part in zip((vectors_real, vectors_imag), solution, strict=True):
                for j, w in columns(0, size, dtype):
                    total = k.variable(k.full(w, 0, dtype))
                    for m in k.range(end + 1):
                        row = k.assume_index(m, size)
                        assert schur.basis is not None
                        total.value = k.fma(part[row], load(schur.basis, row, j, width=w), total.value)
                    store(output, i, j, value=total.value)
            _normalize(vectors_real[i], vectors_imag[i])
            with k.when(eigenvalue.imag > 0):
                for j in k.range(size):
                    vectors_real[end, j] = vectors_real[i, j]
                    vectors_imag[end, j] = -vectors_imag[i, j]


def _start_in_block(h: ArrayReference, eigenvalue: _Complex, i: Value, solution: tuple[ArrayReference, ArrayReference]) -> None:
    """Set the elements i and i + 1 of an eigenvector to one of their diagonal block."""
    j = i + 1
    is_lower_larger = k.absolute(h[j, i]) >= k.absolute(h[i, j])
    # From the row with the larger element next to the diagonal: h_ji·y_i = (λ - h_jj)·y_j, or h_ij·y_j = (λ - h_ii)·y_i.
    divisor = k.select(is_lower_larger, h[j, i], h[i, j])
    diagonal = k.select(is_lower_larger, h[j, j], h[i, i])
    ratio = _Complex((eigenvalue.real - diagonal) / divisor, eigenvalue.imag / divisor)
    for part, value, one in zip(solution, (ratio.real, ratio.imag), (1.0, 0.0), strict=True):
        part[i] = k.select(is_lower_larger, value, one)
        part[j] = k.select(is_lower_larger, one, value)


def _substitute_back(
    h: ArrayReference,
    eigenvalue: _Complex,
    start: Value,
    end: Value,
    solution: tuple[ArrayReference, ArrayReference],
    smallest: Value,
) -> None:
    """Solve (h - λ)·y = 0 for the elements before `start`, given those from `start` to `end`."""
    size, dtype = h.shape[0], h.dtype

    def residual(row: Value) -> _Complex:
        """Return -Σ h_rj·y_j over the elements after the row, which alone are not 0."""
        real, imag = dots(h[row], solution)
        return _Complex(-real, -imag)

    def set_element(row: Value, value: _Complex) -> None:
        solution[0][row], solution[1][row] = value.real, value.imag

    for t in k.range(start):
        row = k.assume_index(start - 1 - t, size)
        before, after = k.assume_index(k.maximum(row - 1, 0), size), k.assume_index(k.minimum(row + 1, size - 1), size)
        is_block_end = (row > 0) & (h[row, before] != 0)
        is_block_start = (row < size - 1) & (h[after, row] != 0)
        value = _Complex(h[row, row] - eigenvalue.real, -eigenvalue.imag)
        with k.when(~(is_block_end | is_block_start)):
            set_element(row, residual(row).over(value, smallest))
        with k.when(is_block_end):
            first_value = _Complex(h[before, before] - eigenvalue.real, -eigenvalue.imag)
            upper, lower = h[before, row], h[row, before]
            product = first_value * value
            determinant = _Complex(product.real - upper * lower, product.imag)
            first, second = residual(before), residual(row)
            smallest_determinant = smallest * smallest
            set_element(before, (value * first - second.scaled(upper)).over(determinant, smallest_determinant))
            set_element(row, (first_value * second - first.scaled(lower)).over(determinant, smallest_determinant))
        greatest = k.maximum(*(_Complex(solution[0][r], solution[1][r]).magnitude() for r in (row, before)))
        # Products of large elements would overflow.
        with k.when(greatest > 1 / epsilon(dtype)):
            for part in solution:
                update(lambda vectors, greatest=greatest: [vectors[0] / greatest], part)


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
    rotation = _Complex(real[position] * length, -imag[position] * length)

    def rotated(parts: Sequence[Value]) -> tuple[Value, Value]:
        product = _Complex(parts[0], parts[1]) * rotation
        return product.real, product.imag

    update(rotated, real, imag)
    imag[position] = 0

"""Schur forms of general matrices: reduction to Hessenberg form, and QR steps until the eigenvalues have converged.

Source: Golub and Van Loan, Matrix Computations, 7.4 and 7.5; exceptional shifts as in LAPACK's dlahqr.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc.kernels as k
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.kernels.variables import Variable
from dlc.library_kernels.eigenvalues import epsilon
from dlc.library_kernels.elements import (
    Element,
    Reference,
    conj,
    fma,
    full,
    imaginary_part,
    magnitude,
    planes,
    real_part,
    variable,
)
from dlc.library_kernels.reflections import REFLECTED_ROWS, reflect, reflection
from dlc.library_kernels.vectors import Index, columns, groups, load, store, update
from dlc.shapes.traced_dims import TracedSize

# Maximum QR steps per eigenvalue (about 1.5 are needed), and the number of steps without progress before an exceptional shift.
_MAX_QR_STEPS = 30
_STEPS_BEFORE_EXCEPTIONAL_SHIFT = 10


def smallest_divisor(norm: Value, dtype: Any) -> Value:
    """Return the smallest difference of eigenvalues by which eigenvectors divide."""
    return k.maximum(norm * epsilon(dtype), float(np.finfo(dtype).tiny))


@dataclass(frozen=True)
class SchurForm(ABC):
    """A reduction of a matrix h to Schur form in place.

    `basis` receives the conjugate transpose of the unitary basis, if it is not None; `real` and `imag` the eigenvalues.
    """

    h: Any
    basis: Any
    real: ArrayReference
    imag: ArrayReference
    norm: Value

    @property
    def size(self) -> TracedSize:
        return self.h.shape[0]

    @abstractmethod
    def reduce_block(self, first: Value, last: Value, num_active: Variable, num_steps: Variable, is_stuck: Value) -> None:
        """Apply a QR step to a block of several rows, or store its eigenvalues and set `num_active` and `num_steps`."""

    @abstractmethod
    def eigenvectors(self, factor: Value, vectors: Sequence[ArrayReference], work_rows: Reference) -> None:
        """Compute real and imaginary parts of the eigenvectors, as rows.

        The Schur form is that of the matrix times `factor`, `real` and `imag` are eigenvalues of the matrix.
        """

    def reduce_to_hessenberg(self, column: Reference, v: Reference, product: Reference) -> None:
        """Eliminate the elements below the subdiagonal, column by column. The operands are work rows of zeros."""
        h, size = self.h, self.size
        for step in k.range(size - 2):
            first = step + 1
            for i in k.range(size):
                column[i] = h[i, step]
            scale, subdiagonal = reflection(column, first, v)
            for matrix in (h, *([] if self.basis is None else [self.basis])):
                _reflect_columns(matrix, v, scale, first, product)
            # Rows are multiplied from the right: by vᵀ, and by the conjugate of v.
            for part in planes(v)[1:]:
                update(lambda vectors: [-vectors[0]], part)
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
                    value = self.h[last, last]
                    imag = imaginary_part(value)
                    self.real[last] = real_part(value)
                    self.imag[last] = 0 if imag is None else imag
                    num_active.value = last
                    num_steps.value = 0
                with k.when(first < last):
                    is_stuck = num_steps.value % _STEPS_BEFORE_EXCEPTIONAL_SHIFT == 0
                    self.reduce_block(first, last, num_active, num_steps, is_stuck)

    def _block_start(self, last: Value) -> Value:
        """Return the first row of the block that ends at `last`; negligible subdiagonal elements become 0."""
        h, size = self.h, self.size
        start = k.variable(0, size=size)
        for i in k.range(last):
            row = k.assume_index(i + 1, size)
            neighbors = magnitude(h[i, i]) + magnitude(h[row, row])
            scale = k.select(neighbors == 0, self.norm, neighbors)
            with k.when(magnitude(h[row, i]) <= scale * epsilon(h.dtype)):
                h[row, i] = 0
                start.value = row
        return start.value


def _reflect_columns(x: Reference, v: Reference, scale: Element, first: Index, product: Reference) -> None:
    """Apply a reflection to the columns of x: x -= conj(t)·v·(vᴴ·x), where v is 0 before `first`; `product` is a work row."""
    size = x.shape[0]
    for j, w in columns(0, size, x.dtype):
        total = variable(full(x, w, 0))
        for i in k.range(first, size):
            total.value = fma(conj(v[i]), load(x, i, j, width=w), total.value)
        store(product, j, value=total.value * conj(scale))
    for i in k.range(first, size):
        update(lambda vectors, factor=-v[i]: [fma(factor, vectors[1], vectors[0])], x[i], product)

"""Weight matrices of small integers with a scale and a zero point or a minimum per group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """A matrix [N, K] of weights `scale · (integer - zero) + minimum`, in groups of consecutive weights of a row.

    Attributes:
        integers: int4, uint4, int8 or uint8 [N, K]; with a table, its indices, uint8.
        scale: f32 or f16 [N, groups], or a quantized matrix of that shape.
        zero: f32 [N, groups]; None is 0.
        minimum: f32 or f16 [N, groups], or a quantized matrix of that shape; None is 0.
        table: The values of the integers, int8 [16]; None if they are values themselves.
        input_order: The input that each column of `integers` multiplies, i64 [K]; None is that of the column.
    """

    integers: NDArray[Any]
    scale: NDArray[Any] | QuantizedMatrix
    zero: NDArray[Any] | None = None
    minimum: NDArray[Any] | QuantizedMatrix | None = None
    table: NDArray[np.int8] | None = None
    input_order: NDArray[np.int64] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.integers.shape

    def rows(self, indices: Any) -> QuantizedMatrix:
        """Return the matrix of these rows."""
        zero = None if self.zero is None else self.zero[indices]
        minimum = None if self.minimum is None else _rows(self.minimum, indices)
        return QuantizedMatrix(self.integers[indices], _rows(self.scale, indices), zero, minimum, self.table, self.input_order)

    def dequantize(self) -> NDArray[Any]:
        """Return the weights as f32 [N, K]."""
        scale = _floats(self.scale)
        integers = self.integers if self.table is None else self.table[self.integers]
        grouped = integers.astype(np.float32).reshape(*scale.shape, -1)
        if self.zero is not None:
            grouped = grouped - self.zero[..., None]
        weights = grouped * scale[..., None]
        if self.minimum is not None:
            weights = weights + _floats(self.minimum)[..., None]
        weights = weights.reshape(self.shape)
        return weights if self.input_order is None else weights[:, np.argsort(self.input_order)]


def _rows(matrix: NDArray[Any] | QuantizedMatrix, indices: Any) -> NDArray[Any] | QuantizedMatrix:
    return matrix.rows(indices) if isinstance(matrix, QuantizedMatrix) else matrix[indices]


def _floats(matrix: NDArray[Any] | QuantizedMatrix) -> NDArray[Any]:
    return matrix.dequantize() if isinstance(matrix, QuantizedMatrix) else matrix.astype(np.float32)


# A weight of a model: floats of any rank, or a quantized matrix.
Weight: TypeAlias = "NDArray[Any] | QuantizedMatrix"


def make_read_only(weight: Weight) -> Weight:
    """Make the arrays of a weight read-only, and those of which they are views: traced programs share them without copies."""
    if isinstance(weight, QuantizedMatrix):
        for part in (weight.integers, weight.scale, weight.zero, weight.minimum):
            if part is not None:
                make_read_only(part)
        return weight
    array: Any = weight
    while isinstance(array, np.ndarray):
        array.flags.writeable = False
        array = array.base
    return weight

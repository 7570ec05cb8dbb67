"""Weight matrices of small integers with a scale and a zero point per group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """A matrix [N, K] of weights `scale · (integer - zero)`, in groups of consecutive weights of a row.

    Attributes:
        integers: int4, uint4, int8 or uint8 [N, K].
        scale: f32 [N, groups].
        zero: f32 [N, groups]; None is 0.
        input_order: The input that each column of `integers` multiplies, i64 [K]; None is that of the column.
    """

    integers: NDArray[Any]
    scale: NDArray[Any]
    zero: NDArray[Any] | None
    input_order: NDArray[np.int64] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.integers.shape

    def rows(self, indices: Any) -> QuantizedMatrix:
        """Return the matrix of these rows."""
        zero = None if self.zero is None else self.zero[indices]
        return QuantizedMatrix(self.integers[indices], self.scale[indices], zero, self.input_order)

    def dequantize(self) -> NDArray[Any]:
        """Return the weights as f32 [N, K]."""
        grouped = self.integers.astype(np.float32).reshape(*self.scale.shape, -1)
        if self.zero is not None:
            grouped = grouped - self.zero[..., None]
        weights = (grouped * self.scale[..., None]).reshape(self.shape)
        return weights if self.input_order is None else weights[:, np.argsort(self.input_order)]


# A weight of a model: floats of any rank, or a quantized matrix.
Weight: TypeAlias = "NDArray[Any] | QuantizedMatrix"


def make_read_only(weight: Weight) -> Weight:
    """Make the arrays of a weight read-only, and those of which they are views: traced programs share them without copies."""
    is_quantized = isinstance(weight, QuantizedMatrix)
    arrays: list[Any] = [weight.integers, weight.scale, weight.zero] if is_quantized else [weight]
    for array in arrays:
        while isinstance(array, np.ndarray):
            array.flags.writeable = False
            array = array.base
    return weight

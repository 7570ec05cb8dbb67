"""Resize an axis: each index of the result is a weighted sum of a few indices of the operand.

One tap becomes a gather, up to four taps a sum of gathers, more taps (antialiasing) a matrix product with the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.frontend.emitter import Emitter, ImportedValue

_MAX_GATHERED_TAPS = 4


def interpolate_axis(emit: Emitter, name: str, x: ImportedValue, axis: int, indices: Array, weights: Array) -> ImportedValue:
    """Resize an axis to the sum over taps t of `weights[t] · x[indices[t]]`; `name` prefixes the names of the constants."""
    dtype = numpy_dtype(x.element_type)
    if len(indices) > _MAX_GATHERED_TAPS:
        result_size = len(indices[0])
        matrix = np.zeros((int(x.shape[axis]), result_size))
        np.add.at(matrix, (indices, np.arange(result_size)), weights)
        axis_last = [a for a in range(x.rank) if a != axis] + [axis]
        y = emit(dl.MatmulOp, emit.transpose(x, axis_last), emit.constant(matrix, dtype, f"{name}_weights"))
        return emit.transpose(y, [axis_last.index(a) for a in range(x.rank)])
    taps = [
        (
            emit.constant(tap, np.int64, f"{name}_indices"),
            None if (weight == 1).all() else emit.constant(weight, dtype, f"{name}_weights"),
        )
        for tap, weight in zip(indices, weights, strict=True)
    ]
    return sum_of_gathers(emit, x, axis, taps)


def sum_of_gathers(
    emit: Emitter, x: ImportedValue, axis: int, taps: Sequence[tuple[ImportedValue, ImportedValue | None]]
) -> ImportedValue:
    """Return the sum over taps of `weights · x[indices]` along an axis; weights of None are 1."""
    total: ImportedValue | None = None
    for indices, weights in taps:
        y = emit(dl.GatherOp, x, indices, axis=axis)
        if weights is not None:
            y = emit(dl.MulOp, y, emit.reshape(weights, (*weights.shape, *(1,) * (x.rank - 1 - axis))))
        total = y if total is None else emit(dl.AddOp, total, y)
    assert total is not None
    return total

"""Resize an axis: each index of the result is a weighted sum of a few indices of the operand.

One tap becomes a gather, up to four taps a sum of gathers, more taps (antialiasing) a matrix product with the weights.
"""

from __future__ import annotations

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
    total: ImportedValue | None = None
    for tap, weight in zip(indices, weights, strict=True):
        y = emit(dl.GatherOp, x, emit.constant(tap, np.int64, f"{name}_indices"), axis=axis)
        if not (weight == 1).all():
            shape = (-1, *(1,) * (x.rank - 1 - axis))
            y = emit(dl.MulOp, y, emit.constant(weight.reshape(shape), dtype, f"{name}_weights"))
        total = y if total is None else emit(dl.AddOp, total, y)
    assert total is not None
    return total

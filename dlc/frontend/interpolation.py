"""Axes of another size: each place of the result is a weighted sum of a few places of the operand.

One tap is a gather, up to four are a sum of gathers, more (antialiasing) are a product with the matrix of weights.
"""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.frontend.emit import Emitter, Value

_GATHERED_TAPS = 4


def interpolated(emit: Emitter, name: str, x: Value, axis: int, indices: Array, weights: Array) -> Value:
    """Each place of the axis as the sum over taps t of `weights[t] · x[indices[t]]`; `name` is what the constants are of."""
    dtype = numpy_dtype(x.element_type)
    if len(indices) > _GATHERED_TAPS:
        resized = len(indices[0])
        matrix = np.zeros((int(x.shape[axis]), resized))
        np.add.at(matrix, (indices, np.arange(resized)), weights)
        last = [a for a in range(x.rank) if a != axis] + [axis]
        y = emit(dl.MatmulOp, emit.transpose(x, last), emit.constant(matrix, dtype, f"{name}_weights"))
        return emit.transpose(y, [last.index(a) for a in range(x.rank)])
    total: Value | None = None
    for tap, weight in zip(indices, weights, strict=True):
        y = emit(dl.GatherOp, x, emit.constant(tap, np.int64, f"{name}_places"), axis=axis)
        if not (weight == 1).all():
            shape = (-1, *(1,) * (x.rank - 1 - axis))
            y = emit(dl.MulOp, y, emit.constant(weight.reshape(shape), dtype, f"{name}_weights"))
        total = y if total is None else emit(dl.AddOp, total, y)
    assert total is not None
    return total

"""Indices of the true elements of boolean rows."""

from __future__ import annotations

import numpy as np

import dlc.kernels as k
from dlc.dialects import dl
from dlc.kernels.references import ArrayReference
from dlc.library_kernels.vectors import points_per_task


def true_indices(op: dl.TrueIndicesOp, x: ArrayReference, y: ArrayReference) -> None:
    """Store each index at the next output position, and advance the position if the element is true.

    The unconditional store avoids mispredicted branches.
    """
    (rows, n), end = x.shape, y.shape[1] - 1
    for row in k.grid(rows, parallel=points_per_task(n)):
        position = k.variable(0, size=end + 1)
        for i in k.range(n):
            y[row, position.value] = i.astype(np.int64)
            position.value = k.minimum(k.select(x[row, i], position.value + 1, position.value), end)
        for unused in k.range(position.value, end + 1):
            y[row, unused] = n

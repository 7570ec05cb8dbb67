"""Non-maximum suppression: drop boxes that overlap boxes with higher scores, in each row."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

import dlc.kernels as k
from dlc.dialects import dl
from dlc.kernels.references import ArrayReference
from dlc.kernels.values import Value
from dlc.library_kernels.vectors import points_per_task

_Interval: TypeAlias = "tuple[Value, Value]"


def non_max_suppression(
    op: dl.SuppressOverlapsOp,
    boxes: ArrayReference,
    candidates: ArrayReference,
    max_selected: ArrayReference,
    iou: ArrayReference,
    y: ArrayReference,
) -> None:
    """Select candidates that do not overlap previously selected boxes, up to the maximum number of boxes of a row."""
    rows, n = candidates.shape

    def overlap_length(a: _Interval, b: _Interval) -> Value:
        """Return the length of the overlap of two intervals."""
        return k.maximum(k.minimum(a[1], b[1]) - k.maximum(a[0], b[0]), 0)

    def box(row: Value, i: Value) -> tuple[_Interval, _Interval, Value]:
        """Return the vertical and the horizontal interval of a box, and its area."""
        low, left, high, right = (boxes[row, i, side] for side in range(4))
        return (low, high), (left, right), (high - low) * (right - left)

    for row in k.grid(rows, parallel=points_per_task(n * 64)):
        limit, ratio, num_selected = max_selected[row, 0], iou[row, 0], k.variable(0, size=n + 1)
        for i in k.range(n):
            is_candidate = candidates[row, i] & (num_selected.value.astype(np.int64) < limit)
            height, width, area = box(row, i)
            is_selected = k.variable(is_candidate)
            for j in k.range(k.select(is_candidate, num_selected.value, 0)):
                other_height, other_width, other_area = box(row, k.assume_index(y[row, j], n))
                intersection = overlap_length(other_height, height) * overlap_length(other_width, width)
                union = other_area + area - intersection
                is_selected.value &= ~((intersection > ratio * union) & (union > 0))
            with k.when(is_selected.value):
                position = k.assume_index(num_selected.value, n)
                y[row, position] = i.astype(np.int64)
                num_selected.value = position + 1
        for unused in k.range(num_selected.value, n):
            y[row, unused] = n

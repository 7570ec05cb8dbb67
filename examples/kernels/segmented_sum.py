"""Sums of consecutive rows by segment."""

from __future__ import annotations

import dlc
import dlc.kernels as k


@dlc.kernel(results=lambda x, offsets: k.Result((offsets.shape[0] - 1, x.shape[1]), x.dtype))
def segmented_sum(x, offsets, y, *, width=64):
    """Sums of the rows offsets[s] … offsets[s + 1] - 1 of x for each segment s."""
    rows, columns = x.shape
    for s in k.grid(offsets.shape[0] - 1):
        first, end = k.clip(offsets[s], rows + 1), k.clip(offsets[s + 1], rows + 1)
        for j, lanes in k.strips(columns, width):
            total = k.variable(k.full(lanes, 0, x.dtype))
            for row in k.range(first, end):
                total.value += x.load(row, j, width=lanes)
            y.store(s, j, value=total.value)

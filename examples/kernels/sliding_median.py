"""Medians of sliding windows, from sorted halves of windows that neighboring windows share."""

from __future__ import annotations

from functools import reduce

import dlc
import dlc.kernels as k


@dlc.kernel(results=lambda x, *, window: k.Result((x.shape[0], x.shape[1] - window + 1), x.dtype))
def sliding_median(x, y, *, window, width=16, block=512):
    """Medians of `window` consecutive elements of each row; `window` is odd."""
    half = window // 2
    for row in k.grid(x.shape[0]):
        for start, size in k.strips(y.shape[1], block):
            # Element i of the sorted half of a window that starts at j is sorted_halves[i][j].
            sorted_halves = [k.buffer(size + half, x.dtype, fill=None) for _ in range(half)]
            for j, lanes in k.strips(size + half if half else 0, width):
                values = [x.load(row, start + j + i, width=lanes) for i in range(half)]
                for a, b in ((i, i + 1) for end in range(half - 1, 0, -1) for i in range(end)):
                    values[a], values[b] = _smaller(values[a], values[b]), _larger(values[a], values[b])
                for part, value in zip(sorted_halves, values, strict=True):
                    part.store(j, value=value)
            for j, lanes in k.strips(size, width):
                median = x.load(row, start + j + 2 * half, width=lanes)
                if half:
                    # The median is between the two middle elements of both halves.
                    first, second = ([part.load(j + i, width=lanes) for part in sorted_halves] for i in (0, half))
                    lows = [_larger(first[i], second[half - 2 - i]) for i in range(half - 1)]
                    highs = [_smaller(first[i], second[half - i]) for i in range(1, half)]
                    median = _larger(median, reduce(_smaller, [*lows, first[-1], second[-1]]))
                    median = _smaller(median, reduce(_larger, [*highs, first[0], second[0]]))
                y.store(row, start + j, value=median)


def _smaller(x, y):
    return k.select(x < y, x, y)


def _larger(x, y):
    return k.select(x < y, y, x)

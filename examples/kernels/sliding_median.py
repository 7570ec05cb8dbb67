"""Medians of sliding windows, by a network of exchanges on vectors of windows."""

from __future__ import annotations

import dlc
import dlc.kernels as k


@dlc.kernel(results=lambda x, *, window: k.Result((x.shape[0], x.shape[1] - window + 1), x.dtype))
def sliding_median(x, y, *, window, width=16):
    """Medians of `window` consecutive elements of each row; `window` is odd."""
    for row in k.grid(x.shape[0]):
        for j, lanes in k.strips(y.shape[1], width):
            loaded = [x.load(row, j + offset, width=lanes) for offset in range(window)]
            # Neither the smallest nor the largest of more than half of the elements is the median.
            held = [loaded.pop() for _ in range(window // 2 + 2)] if window > 1 else [loaded.pop()]
            while (n := len(held)) > 1:
                for a in range(n // 2):
                    _exchange(held, a, n - 1 - a)
                for a in range(1, (n + 1) // 2):
                    _exchange(held, 0, a)
                for a in range(n // 2, n - 1):
                    _exchange(held, a, n - 1)
                held = held[1:-1] + [loaded.pop() for _ in loaded[:1]]
            y.store(row, j, value=held[0])


def _exchange(values, a, b):
    """Order two of the values."""
    is_ordered = values[a] < values[b]
    values[a], values[b] = k.select(is_ordered, values[a], values[b]), k.select(is_ordered, values[b], values[a])

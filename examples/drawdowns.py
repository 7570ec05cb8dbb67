"""Compute drawdowns with a kernel: how far each value of a series is below the maximum before it.

    python examples/drawdowns.py [SERIES.npy]

SERIES.npy is an array [N, T] of N series; without it, random walks are used.
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np

import dlc
import dlc.kernels as k


@dlc.kernel(results=lambda x: (k.Result(x.shape, x.dtype), k.Result(x.shape[:1], x.dtype)))
def drawdowns(x, drawdown, largest):
    """Return the drawdown at each step, and the largest one of each series."""
    for series in k.grid(x.shape[0]):
        peak = k.variable(x[series, 0])
        worst = k.variable(0, x.dtype)
        for t in k.range(x.shape[1]):
            value = x[series, t]
            peak.value = k.maximum(peak.value, value)
            drawdown[series, t] = peak.value - value
            worst.value = k.maximum(worst.value, peak.value - value)
        largest[series] = worst.value


def main() -> None:
    rng = np.random.default_rng(0)
    x = np.load(sys.argv[1]) if len(sys.argv) > 1 else rng.normal(size=(64, 10_000)).cumsum(1)
    drawdowns(x)  # the first call compiles for this shape
    start = perf_counter()
    _, largest = drawdowns(x)
    print(f"{len(x)} series of {x.shape[1]} steps in {(perf_counter() - start) * 1e3:.1f} ms")
    print(f"largest drawdown {largest.max():.3f}, in series {largest.argmax()}")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")

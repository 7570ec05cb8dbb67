"""Benchmark matrix products of two arguments against NumPy's BLAS, on one thread.

    python benchmarks/matrix_products.py [SIZES …] [--of nn|nt|tn] [--dtype float32] [--seconds 2]

A size is N, or MxKxN; `nt` is a @ b.T, `tn` is a.T @ b. Calls are interleaved and timed in processor time. Prints the rates of
the fastest calls, their ratio, and the median ratio of neighboring calls.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

SIZES = [
    "316",
    "1000",
    "1001",
    "1536",
    "2048",
    "2050",
    "2500",
    "4x2048x2048",
    "8x2048x2048",
    "16x2048x2048",
    "1x2000x2000",
    "1x4096x256",
]
PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "nn": lambda a, b: a @ b,
    "nt": lambda a, b: a @ b.T,
    "tn": lambda a, b: a.T @ b,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=SIZES, metavar="SIZE")
    parser.add_argument("--of", default="nn", choices=PRODUCTS)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    print("| | dlc GFLOP/s | NumPy | speedup (fastest) | speedup (median) |\n|---|---|---|---|---|")
    for size in arguments.sizes:
        m, k, n = map(int, size.split("x")) if "x" in size else (int(size),) * 3
        dlc_seconds, numpy_seconds = measure(arguments.of, (m, k, n), arguments.dtype, arguments.seconds)
        rates = [2e-9 * m * k * n / min(times) for times in (dlc_seconds, numpy_seconds)]
        ratio = median(b / a for a, b in zip(dlc_seconds, numpy_seconds, strict=True))
        print(f"| {size} | {rates[0]:.1f} | {rates[1]:.1f} | {rates[0] / rates[1]:.2f} | {ratio:.2f} |", flush=True)


def measure(transposes: str, sizes: tuple[int, int, int], dtype: str, seconds: float) -> tuple[list[float], list[float]]:
    """Return the seconds of interleaved calls of dlc and of NumPy."""
    import numpy as np

    import dlc

    m, k, n = sizes
    rng = np.random.default_rng(0)
    shapes = ((k, m) if transposes == "tn" else (m, k), (n, k) if transposes == "nt" else (k, n))
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    product = PRODUCTS[transposes]
    compiled = dlc.jit(product, num_threads=1)
    np.testing.assert_allclose(compiled(a, b), product(a, b), rtol=1e-3, atol=1e-3 * k**0.5)
    # Repeat small products so that the resolution of the clock does not matter.
    calls = max(1, int(2e7 / (m * k * n)))
    times: tuple[list[float], list[float]] = [], []
    end_time = time.monotonic() + seconds
    while len(times[0]) < 3 or time.monotonic() < end_time:
        for function, samples in zip((compiled, product), times, strict=True):
            start = time.thread_time()
            for _ in range(calls):
                _ = function(a, b)
            samples.append((time.thread_time() - start) / calls)
    return times


if __name__ == "__main__":
    main()

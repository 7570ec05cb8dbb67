"""Benchmark `dlc.numpy.linalg` against `numpy.linalg`: compile time and latency.

    python benchmarks/linalg.py [FUNCTION …] [--sizes 8x1000,64,200,500] [--dtype float64] [--threads 1]

Both libraries compute the same matrices, interleaved; the fastest run of each counts. Compile times are processor time, without
the cache. Functions of symmetric matrices get x·xᵀ/n + I; linear systems have four right-hand sides.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

FUNCTIONS = ("solve", "inv", "det", "cholesky", "qr", "lstsq", "eigh", "eigvalsh", "svd", "svdvals", "pinv")
MIN_SECONDS, MIN_RUNS = 1.0, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", default=FUNCTIONS, metavar="FUNCTION")
    parser.add_argument(
        "--sizes", default="8x1000,64,200,500", help="comma-separated: the size N of a matrix, or NxCOUNT for a batch"
    )
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(arguments.threads)
    print("| | matrices | compile s | dlc ms | NumPy ms | speedup |\n|---|---|---|---|---|---|")
    for function in arguments.functions:
        for size in arguments.sizes.split(","):
            rows, _, count = size.partition("x")
            row = measure(function, int(rows), int(count or 0), arguments.dtype, arguments.threads)
            if row:
                print(f"| `{function}` | {count or 1} of {rows} × {rows} | {row}", flush=True)


def measure(name: str, rows: int, count: int, dtype: str, threads: int) -> str:
    """Return a row of the table, or an empty string where NumPy does not accept a batch."""
    import numpy as np

    import dlc
    import dlc.numpy as dnp

    operands = operands_of(name, rows, count, dtype)
    compiled = dlc.jit(getattr(dnp.linalg, name), num_threads=threads, cache=False)
    reference = getattr(np.linalg, name)
    try:
        _ = reference(*operands)
    except np.linalg.LinAlgError:
        return ""
    start = processor_seconds()
    _ = compiled(*operands)
    compile_seconds = processor_seconds() - start
    dlc_seconds, numpy_seconds = fastest_seconds(lambda: compiled(*operands), lambda: reference(*operands))
    return f"{compile_seconds:.2f} | {dlc_seconds * 1e3:.3g} | {numpy_seconds * 1e3:.3g} | {numpy_seconds / dlc_seconds:.2f} |"


def processor_seconds() -> float:
    """Return the processor time of this process and its children."""
    return sum(os.times()[:4])


def operands_of(name: str, rows: int, count: int, dtype: str) -> list[Any]:
    import numpy as np

    rng, batch_shape = np.random.default_rng(0), (count,) if count else ()
    x = rng.standard_normal((*batch_shape, rows, rows))
    if name in ("cholesky", "eigh", "eigvalsh"):
        x = x @ x.mT / rows + np.eye(rows)
    operands = [x, rng.standard_normal((*batch_shape, rows, 4))] if name in ("solve", "lstsq") else [x]
    return [a.astype(dtype) for a in operands]


def fastest_seconds(*functions: Callable[[], Any]) -> list[float]:
    """Return the fastest time of each function, interleaved."""
    best = [float("inf")] * len(functions)
    end, runs = time.perf_counter() + MIN_SECONDS, 0
    while runs < MIN_RUNS or time.perf_counter() < end:
        for k, function in enumerate(functions):
            start = time.perf_counter()
            _ = function()
            best[k] = min(best[k], time.perf_counter() - start)
        runs += 1
    return best


if __name__ == "__main__":
    main()

"""`dlc.numpy.linalg` beside `numpy.linalg`: seconds to compile, milliseconds to run.

    python benchmarks/linalg.py [FUNCTION …] [--sizes 8x1000,64,200,500] [--dtype float64] [--threads 1]

Both compute the same matrices, in turns; the quickest of the runs counts. Compile seconds are those of the processor, without
the cache. Functions that take symmetric matrices get x·xᵀ/n + 1, systems four columns.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

FUNCTIONS = ("solve", "inv", "det", "cholesky", "qr", "lstsq", "eigh", "eigvalsh", "svd", "svdvals", "pinv")
# How long both run, and how often at least.
SECONDS, RUNS = 1.0, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", default=FUNCTIONS, metavar="FUNCTION")
    parser.add_argument("--sizes", default="8x1000,64,200,500", help="rows, or rows x number of matrices")
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(arguments.threads)
    print("| | matrices | compile s | dlc ms | NumPy ms | faster |\n|---|---|---|---|---|---|")
    for function in arguments.functions:
        for size in arguments.sizes.split(","):
            rows, _, count = size.partition("x")
            row = measured(function, int(rows), int(count or 0), arguments.dtype, arguments.threads)
            if row:
                print(f"| `{function}` | {count or 1} of {rows} × {rows} | {row}", flush=True)


def measured(name: str, rows: int, count: int, dtype: str, threads: int) -> str:
    """A line of the table; nothing where NumPy takes no batch."""
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
    start = busy()
    _ = compiled(*operands)
    seconds = busy() - start
    ours, theirs = quickest(lambda: compiled(*operands), lambda: reference(*operands))
    return f"{seconds:.2f} | {ours * 1e3:.3g} | {theirs * 1e3:.3g} | {theirs / ours:.2f} |"


def busy() -> float:
    """The seconds that this process and those that it made have computed."""
    return sum(os.times()[:4])


def operands_of(name: str, rows: int, count: int, dtype: str) -> list[Any]:
    import numpy as np

    random, leading = np.random.default_rng(0), (count,) if count else ()
    x = random.standard_normal((*leading, rows, rows))
    if name in ("cholesky", "eigh", "eigvalsh"):
        x = x @ x.mT / rows + np.eye(rows)
    operands = [x, random.standard_normal((*leading, rows, 4))] if name in ("solve", "lstsq") else [x]
    return [a.astype(dtype) for a in operands]


def quickest(*functions: Callable[[], Any]) -> list[float]:
    """The least seconds that each takes, in turns."""
    best = [float("inf")] * len(functions)
    end, runs = time.perf_counter() + SECONDS, 0
    while runs < RUNS or time.perf_counter() < end:
        for k, function in enumerate(functions):
            start = time.perf_counter()
            _ = function()
            best[k] = min(best[k], time.perf_counter() - start)
        runs += 1
    return best


if __name__ == "__main__":
    main()

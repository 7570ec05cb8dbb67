"""Benchmark the kernels of examples/kernels: python benchmarks/kernels.py [--threads 1] [--target cpu] [--seconds 2]
[KERNEL …].

Attention is compared with dlc's own, the others with benchmarks/kernels.c, compiled by `gcc -O3 -march=native -fopenmp`, or for
AVX2 if `DLC_CPU=avx2`. Calls of dlc include its argument checks. Runs are interleaved; medians of the processor time of one
thread are compared, or minima of the elapsed time of several threads, which other processes delay. The target `opencl` uses all
threads of its device: compare it with as many.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from c_library import compile_c
from rich.console import Console
from rich.table import Table

import dlc
from dlc.measure.latency import measure_interleaved
from dlc.nn import attention

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples" / "kernels"))

from block_product import block_product  # noqa: E402
from flash_attention import flash_attention  # noqa: E402
from segmented_sum import segmented_sum  # noqa: E402
from sliding_median import sliding_median  # noqa: E402
from smith_waterman import smith_waterman  # noqa: E402
from stencil import stencil  # noqa: E402

_AVX2 = os.environ.get("DLC_CPU") == "avx2"
_RNG = np.random.default_rng(0)

Case = tuple[Callable[..., Any], Callable[..., Any], list[Any]]


def normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape, np.float32)


def c_function(library: ctypes.CDLL, name: str, shape: Sequence[int], dtype: Any, *sizes: int) -> Callable[..., np.ndarray]:
    """Return a C function of arrays, then of a result of this shape and of sizes, as a function of arrays."""
    result = np.empty(shape, dtype)

    def call(*arrays: np.ndarray) -> np.ndarray:
        pointers = (ctypes.c_void_p(x.ctypes.data) for x in (*arrays, result))
        getattr(library, name)(*pointers, *map(ctypes.c_long, sizes))
        return result

    return call


def attention_case(threads: int, target: str) -> Case:
    b, heads, groups, n, depth = 1, 8, 2, 1024, 64
    arrays = [normal(b, heads, n, depth), normal(b, groups, n, depth), normal(b, groups, n, depth)]

    @dlc.jit(num_threads=threads, target=target)
    def grouped(q: Any, key: Any, value: Any) -> Any:
        by_group = q.reshape(b, groups, heads // groups, n, depth)
        return attention(by_group, key[:, :, None], value[:, :, None], causal=True).reshape(q.shape)

    sizes = {"rows": 4, "lanes": 24} if _AVX2 else {}
    own = dlc.jit(num_threads=threads, target=target)(lambda q, key, value: flash_attention(q, key, value, **sizes))
    return own, grouped, arrays


def cases(library: ctypes.CDLL, threads: int, target: str) -> dict[str, Callable[[], Case]]:
    """Return for each kernel: its compiled function, the other function, and their arguments."""

    def against_c(kernel: Callable[..., Any], arrays: list[Any], shape: Sequence[int], dtype: Any, *sizes: int) -> Case:
        name = getattr(kernel, "__name__", "sliding_median")
        return dlc.jit(num_threads=threads, target=target)(kernel), c_function(library, name, shape, dtype, *sizes), arrays

    def block_product_case() -> Case:
        n, blocks = 2048, 64
        packed = _RNG.integers(0, 256, (n, blocks, 16)).astype(np.uint8)
        return against_c(
            block_product, [normal(32 * blocks), packed, normal(n, blocks).astype(np.float16)], (n,), np.float32, n, blocks
        )

    def sliding_median_case() -> Case:
        def sliding_median_of_7(x: Any) -> Any:
            return sliding_median(x, window=7)

        sliding_median_of_7.__name__ = "sliding_median"
        return against_c(sliding_median_of_7, [normal(64, 4102)], (64, 4096), np.float32, 64, 4102)

    def segmented_sum_case() -> Case:
        rows, columns, segments = 8192, 96, 512
        offsets = np.sort(np.concatenate([[0, rows], _RNG.integers(0, rows, segments - 1)])).astype(np.int32)
        return against_c(segmented_sum, [normal(rows, columns), offsets], (segments, columns), np.float32, segments, columns)

    def smith_waterman_case() -> Case:
        pairs, m, n = 64, 128, 1000
        a, b = (_RNG.integers(0, 4, (pairs, size)).astype(np.int8) for size in (m, n))
        return against_c(smith_waterman, [a, b, np.array([2, -1, -1], np.int32)], (pairs,), np.int32, pairs, m, n)

    return {
        "flash_attention": lambda: attention_case(threads, target),
        "block_product": block_product_case,
        "stencil": lambda: against_c(stencil, [normal(66, 66, 130)], (64, 64, 128), np.float32, 64, 64, 128),
        "sliding_median": sliding_median_case,
        "segmented_sum": segmented_sum_case,
        "smith_waterman": smith_waterman_case,
    }


def _read(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    return np.asarray(function(*arrays))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="cpu", choices=("cpu", "opencl"))
    parser.add_argument("--seconds", type=float, default=2, help="seconds per kernel (default: 2)")
    arguments = parser.parse_args()
    # GNU's OpenMP reads it when the first parallel loop runs.
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    table = Table("kernel", "µs", "other µs", "speed relative to the other")
    for name, case in cases(
        compile_c(Path(__file__).with_suffix(".c"), "-fopenmp"), arguments.threads, arguments.target
    ).items():
        if arguments.kernels and name not in arguments.kernels:
            continue
        kernel, other, arrays = case()
        np.testing.assert_allclose(np.asarray(kernel(*arrays)), np.asarray(other(*arrays)), rtol=1e-3, atol=1e-3)
        # Calls of a device return before it has finished: read the results.
        runs = {name: partial(_read, function, *arrays) for name, function in (("kernel", kernel), ("other", other))}
        uses_one_thread = arguments.threads == 1 and arguments.target == "cpu"
        clock = time.process_time if uses_one_thread else time.perf_counter
        latencies = measure_interleaved(runs, arguments.seconds, arguments.threads, clock)
        both = (latencies[name] for name in ("kernel", "other"))
        own, others = (1e6 * (latency.median if uses_one_thread else latency.fastest) for latency in both)
        table.add_row(name, f"{own:.0f}", f"{others:.0f}", f"{others / own:.0%}")
    Console(width=None if sys.stdout.isatty() else 100).print(table)


if __name__ == "__main__":
    main()

"""Benchmark Fourier transforms against NumPy: python benchmarks/fourier.py [--seconds 0.5].

Times compiled calls on complex64 or float32 arrays on one processor, interleaved with NumPy's; the fastest of each counts.
Calls are measured end to end, with the conversion of complex arguments and results.
"""

from __future__ import annotations

import argparse
import os
import sys

# Set before NumPy's libraries count processors.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import dlc  # noqa: E402
import dlc.numpy as dnp  # noqa: E402
from dlc.measure.latency import measure_interleaved  # noqa: E402

CASES = [
    ("fft", (1024,)), ("fft", (100, 1024)), ("fft", (100, 1000)), ("fft", (65536,)), ("fft", (20, 1009)), ("fft2", (256, 256)),
    ("rfft", (1024,)), ("rfft", (100, 1024)), ("irfft", (100, 513)),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds per transform (default: 0.5)")
    arguments = parser.parse_args()
    rng, table = np.random.default_rng(0), Table("transform", "shape", "dlc µs", "NumPy µs", "speedup")
    for name, shape in CASES:
        real = rng.standard_normal(shape, np.float32)
        x = real if name == "rfft" else (real + 1j * rng.standard_normal(shape, np.float32)).astype(np.complex64)
        dlc_function, numpy_function = dlc.jit(num_threads=1)(getattr(dnp.fft, name)), getattr(np.fft, name)
        times = measure_interleaved(
            {
                "dlc": lambda dlc_function=dlc_function, x=x: dlc_function(x),
                "numpy": lambda numpy_function=numpy_function, x=x: numpy_function(x),
            },
            arguments.seconds,
        )
        dlc_us, numpy_us = (1e6 * times[k].fastest for k in ("dlc", "numpy"))
        table.add_row(name, "×".join(map(str, shape)), f"{dlc_us:.0f}", f"{numpy_us:.0f}", f"{numpy_us / dlc_us:.2f}")
    Console(width=None if sys.stdout.isatty() else 100).print(table)


if __name__ == "__main__":
    main()

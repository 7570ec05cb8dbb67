"""Compare one convolution kernel of the loops stage with the processor's peak: python benchmarks/kernel_peak.py [TARGET].

The kernel is a 3×3 convolution, 56×56×64 to 64 channels, with bias, residual and ReLU. The peak is measured by a loop of
independent fused multiply-adds on registers. Both run on one thread, interleaved, since clock rates vary; medians.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from dlc.backends.cpu.limits import peak_flops, peak_text
from dlc.backends.cpu.llvm import compile_text
from dlc.dialects.registry import make_context
from dlc.emission.llvm.kernel import emit_kernel
from dlc.ir import func, parse_module
from dlc.runtime.cpu.code.loader import load_object
from dlc.target import resolve

KERNEL = Path(__file__).parent.parent / "tests" / "backends" / "cpu" / "conv_add_relu.mlir"
SHAPES = [(58, 58, 64), (2, 3, 192, 32), (2, 32), (58, 58, 2, 32), (58, 58, 2, 32)]
FLOPS = 2 * 56 * 56 * 64 * 64 * 9
ROUNDS = 31


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Return random f32 values, aligned to 64 bytes."""
    size = int(np.prod(shape))
    raw = np.zeros(size + 16, np.float32)
    start = -raw.ctypes.data % 64 // 4
    array = raw[start : start + size].reshape(shape)
    array[...] = np.random.default_rng(0).standard_normal(shape)
    return array


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", default="cpu")
    target = resolve(parser.parse_args().target)
    module = parse_module(make_context(), KERNEL.read_text(), str(KERNEL))
    kernel = next(op for op in module.ops if isinstance(op, func.FuncOp))
    start = time.perf_counter()
    emitted = emit_kernel(kernel, target)
    emit_seconds = time.perf_counter() - start
    compile_text(peak_text(target), target)  # warm up LLVM
    llvm_seconds = seconds(lambda: discard(compile_text(emitted.text, target)))
    code = load_object(compile_text(emitted.text, target))
    peak_code = load_object(compile_text(peak_text(target), target))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    task, peak = function(code.address("conv_add_relu.0")), function(peak_code.address("peak"))
    buffers = [aligned(shape) for shape in SHAPES]
    arguments = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
    scratch = aligned((1024,))
    count = 400_000

    def run_kernel() -> None:
        for i in range(emitted.grids[0]):
            task(arguments, i)

    ratios: list[float] = []
    rates: list[float] = []
    for _ in range(ROUNDS):
        peak_rate = peak_flops(target, count) / seconds(lambda: peak(scratch.ctypes.data, count))
        rate = FLOPS / min(seconds(run_kernel) for _ in range(3))
        rates.append(rate)
        ratios.append(rate / peak_rate)
    print(f"{target.name}: {median(rates) / 1e9:.0f} GFLOP/s, {100 * median(ratios):.0f} % of peak")
    print(f"emission {emit_seconds * 1e3:.1f} ms, LLVM {llvm_seconds * 1e3:.1f} ms")


def discard(_: object) -> None:
    """Discard a result."""


if __name__ == "__main__":
    main()

"""Benchmark f32 matrix products and convolutions on an OpenCL device against PyTorch on CUDA, if available.

    python benchmarks/gpu_matrix_products.py [SHAPES …] [--target opencl] [--seconds 0.02]

SHAPE is MxNxK or BATCHxMxNxK; with the suffix `a` the left operand is transposed, as in a.T @ b. convNxSIZExINxOUT is a 3×3
convolution, channels last, on N padded images. Launches of one kernel are queued back to back, and their average time is
reported. PyTorch computes in f32 (no TF32), with channels-last convolutions.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dlc
from dlc import nn
from dlc.runtime.opencl.commands import CommandList
from dlc.runtime.opencl.program import Launcher

try:
    import torch
except ImportError:
    torch = None

SHAPES = [
    *(f"{n}x{n}x{n}" for n in (512, 1024, 2048, 4096)),
    *("1000x1000x1000", "1023x777x513", "4096x4096x4096a"),
    *("384x128x128x64", "384x128x64x128", "4096x768x768", "4096x3072x768", "4096x768x3072", "128x768x768", "128x3072x768"),
    *("conv32x56x64x64", "conv32x28x128x128", "conv32x14x256x256", "conv32x7x512x512"),
]


class _Repeated(Launcher):
    """Launcher that enqueues each launch several times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def launch(self, commands: CommandList, launch: Any, buffers: Any) -> None:
        for _ in range(self.times):
            commands.launch(launch, buffers)


def seconds_per_run(repeat: Callable[[int], None], seconds: float) -> float:
    """Return the time of one run; the number of runs grows until they take `seconds`."""
    repeat(1)
    times, best = 1, float("inf")
    for _ in range(16):
        start = time.perf_counter()
        repeat(times)
        elapsed = time.perf_counter() - start
        best = min(best, elapsed / times)
        if elapsed > seconds:
            break
        times = max(2 * times, min(1000, int(1.2 * times * seconds / elapsed)))
    return best


def measure_dlc(
    function: Callable[..., Any], arrays: list[np.ndarray], target: str, seconds: float
) -> tuple[float, np.ndarray]:
    """Return the time of a function's kernels, and its result."""
    model = dlc.jit(function, target=target).lower(*arrays).compile()
    device_arrays = [dlc.to_device(a, target) for a in arrays]
    program = model.artifact.program
    (result,) = program.run(device_arrays)

    def repeat(times: int) -> None:
        program.run_with(device_arrays, _Repeated(times))
        program.session.queue.finish()

    return seconds_per_run(repeat, seconds), np.asarray(result)


def measure_torch(function: Callable[..., Any], arrays: list[np.ndarray], seconds: float) -> float | None:
    if torch is None or not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    device_arrays = [torch.tensor(a).cuda() for a in arrays]

    def repeat(times: int) -> None:
        for _ in range(times):
            function(*device_arrays)
        torch.cuda.synchronize()

    with torch.no_grad():
        return seconds_per_run(repeat, seconds)


def convolution(x: Any, w: Any) -> Any:
    # Without padding, so that only the convolution is timed.
    return nn.conv(x, w)


def torch_convolution(x: Any, w: Any) -> Any:
    return torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1))


def parse_shape(shape: str) -> tuple[Callable[..., Any], Callable[..., Any], list[np.ndarray], float]:
    """Return dlc's function, PyTorch's, their arguments, and the number of floating-point operations."""
    rng = np.random.default_rng(0)
    sizes = [int(n) for n in re.findall(r"\d+", shape)]
    if shape.startswith("conv"):
        images, size, c_in, c_out = sizes
        arrays = [rng.standard_normal(s).astype(np.float32) for s in ((images, size + 2, size + 2, c_in), (3, 3, c_in, c_out))]
        return convolution, torch_convolution, arrays, 2.0 * images * size * size * 9 * c_in * c_out
    *batch, m, n, k = sizes
    transposed = shape.endswith("a")
    shapes = ((*batch, k, m) if transposed else (*batch, m, k)), (*batch, k, n)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    product = (lambda a, b: a.swapaxes(-1, -2) @ b) if transposed else (lambda a, b: a @ b)
    return product, product, arrays, 2.0 * np.prod([*batch, m, n, k], dtype=float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=SHAPES, metavar="SHAPE")
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--seconds", type=float, default=0.02, help="minimal seconds per shape (default: 0.02)")
    arguments = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("PyTorch on CUDA is not available: measuring dlc only")
    print("| | dlc µs | TFLOP/s | PyTorch µs | TFLOP/s | dlc's relative speed |\n|---|---|---|---|---|---|")
    for shape in arguments.shapes:
        function, torch_function, arrays, operations = parse_shape(shape)
        dlc_seconds, result = measure_dlc(function, arrays, arguments.target, arguments.seconds)
        if not shape.startswith("conv"):
            a, b = arrays
            rows = (a[..., :8].swapaxes(-1, -2) if shape.endswith("a") else a[..., :8, :]).astype(np.float64)
            np.testing.assert_allclose(result[..., :8, :], rows @ b, rtol=1e-3, atol=1e-3 * b.shape[-2] ** 0.5)
        line = f"| {shape} | {dlc_seconds * 1e6:.1f} | {operations / dlc_seconds / 1e12:.1f}"
        torch_seconds = measure_torch(torch_function, arrays, arguments.seconds)
        peer_cells = (
            "| | |"
            if torch_seconds is None
            else f"| {torch_seconds * 1e6:.1f} | {operations / torch_seconds / 1e12:.1f} | {torch_seconds / dlc_seconds:.0%}"
        )
        print(f"{line} {peer_cells} |", flush=True)


if __name__ == "__main__":
    main()

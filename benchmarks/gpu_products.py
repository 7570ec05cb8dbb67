"""Products and convolutions in f32 on an OpenCL device, beside PyTorch's on CUDA where it is there.

    python benchmarks/gpu_products.py [SHAPES …] [--target opencl] [--seconds 0.02]

A shape is ROWSxCOLUMNSxSUMMED or BATCHxROWSxCOLUMNSxSUMMED, and with `a` behind it one whose left operand's rows lie along
what is summed over, as in a.T @ b; or convIMAGESxSIZExINxOUT, a convolution of 3 × 3, channels last, of images that were padded
before. Launches of one kernel follow one another, so that the queue is never empty; all of them count, by the clock. PyTorch
computes in f32 (no TF32); its convolutions are channels last.
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
from dlc.runtime.opencl.program import Launcher, OpenCLProgram

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
    """Puts each launch into the queue so many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def launch(self, program: OpenCLProgram, launch: Any, held: Any) -> None:
        for _ in range(self.times):
            program.launch(launch, held)


def fastest(repeat: Callable[[int], None], seconds: float) -> float:
    """The seconds of one run, of as many as take so long."""
    repeat(1)
    times, best = 1, float("inf")
    for _ in range(16):
        start = time.perf_counter()
        repeat(times)
        taken = time.perf_counter() - start
        best = min(best, taken / times)
        if taken > seconds:
            break
        times = max(2 * times, min(1000, int(1.2 * times * seconds / taken)))
    return best


def ours(function: Callable[..., Any], arrays: list[np.ndarray], target: str, seconds: float) -> tuple[float, np.ndarray]:
    """The seconds of a function's kernels, and what it computes."""
    model = dlc.jit(function, target=target).lower(*arrays).compile()
    on_device = [dlc.to_device(a, target) for a in arrays]
    program = model.artifact.program
    (result,) = program.run(on_device)

    def repeat(times: int) -> None:
        program.run_by(on_device, _Repeated(times))
        program.session.queue.finish()

    return fastest(repeat, seconds), np.asarray(result)


def theirs(function: Callable[..., Any], arrays: list[np.ndarray], seconds: float) -> float | None:
    if torch is None or not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    on_device = [torch.tensor(a).cuda() for a in arrays]

    def repeat(times: int) -> None:
        for _ in range(times):
            function(*on_device)
        torch.cuda.synchronize()

    with torch.no_grad():
        return fastest(repeat, seconds)


def convolution(x: Any, w: Any) -> Any:
    # Padded, so that what is timed is the convolution alone.
    return nn.conv(x, w)


def torch_convolution(x: Any, w: Any) -> Any:
    return torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1))


def case(shape: str) -> tuple[Callable[..., Any], Callable[..., Any], list[np.ndarray], float]:
    """dlc's function, PyTorch's, their arrays, and how many operations it is."""
    rng = np.random.default_rng(0)
    numbers = [int(n) for n in re.findall(r"\d+", shape)]
    if shape.startswith("conv"):
        images, size, read, made = numbers
        arrays = [rng.standard_normal(s).astype(np.float32) for s in ((images, size + 2, size + 2, read), (3, 3, read, made))]
        return convolution, torch_convolution, arrays, 2.0 * images * size * size * 9 * read * made
    *batch, m, n, k = numbers
    turned = shape.endswith("a")
    shapes = ((*batch, k, m) if turned else (*batch, m, k)), (*batch, k, n)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    product = (lambda a, b: a.swapaxes(-1, -2) @ b) if turned else (lambda a, b: a @ b)
    return product, product, arrays, 2.0 * np.prod([*batch, m, n, k], dtype=float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=SHAPES, metavar="SHAPE")
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--seconds", type=float, default=0.02)
    arguments = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("PyTorch on CUDA is not there to compare with")
    print("| | dlc µs | TFLOP/s | PyTorch µs | TFLOP/s | dlc's speed beside it |\n|---|---|---|---|---|---|")
    for shape in arguments.shapes:
        function, other, arrays, operations = case(shape)
        own, result = ours(function, arrays, arguments.target, arguments.seconds)
        if not shape.startswith("conv"):
            a, b = arrays
            rows = (a[..., :8].swapaxes(-1, -2) if shape.endswith("a") else a[..., :8, :]).astype(np.float64)
            np.testing.assert_allclose(result[..., :8, :], rows @ b, rtol=1e-3, atol=1e-3 * b.shape[-2] ** 0.5)
        line = f"| {shape} | {own * 1e6:.1f} | {operations / own / 1e12:.1f}"
        taken = theirs(other, arrays, arguments.seconds)
        beside = "| | |" if taken is None else f"| {taken * 1e6:.1f} | {operations / taken / 1e12:.1f} | {taken / own:.0%}"
        print(f"{line} {beside} |", flush=True)


if __name__ == "__main__":
    main()

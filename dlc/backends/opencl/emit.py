"""OpenCL C text of a kernel at the end of the loops stage.

One `__kernel void <name>_<g>(…)` for each grid g, of all the kernel's arguments in order, launched in one dimension with
`groups · items` items in groups of `items`. Buffers start at multiples of 64 bytes.
"""

from __future__ import annotations

from dlc.backends.opencl.syntax import OPENCL
from dlc.emission.c.kernel import KernelSource, emit
from dlc.ir import func
from dlc.target import Target


def emit_kernel(kernel: func.FuncOp, target: Target) -> KernelSource:
    """The OpenCL C of a kernel function at the end of the loops stage.

    Raises UnsupportedError for an op that cannot be emitted, or a type that the device does not compute with.
    """
    return emit(kernel, target, OPENCL)

"""OpenCL C text of a kernel at the end of the loops stage.

One `__kernel void <name>_<g>(…)` for each grid g, of all the kernel's arrays in order, each as a buffer and the byte at which
it begins there, and its sizes; launched in one dimension with `groups · items` items in groups of `items`. An array of 64·n
bytes begins at a multiple of 64, others at a multiple of the largest power of two that divides their size.
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

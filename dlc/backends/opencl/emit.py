"""OpenCL C text of a kernel at the end of the loops stage.

One `__kernel void <name>_<g>(…)` for each grid g. Its parameters are all arrays of the kernel in order, each as a buffer and
the byte offset of the array in it, followed by the sizes. It is launched with a one-dimensional ND-range of `groups · items`
work-items in work-groups of `items`. An array of 64·n bytes is aligned to 64 bytes, others to the largest power of two that
divides their size.
"""

from __future__ import annotations

from dlc.backends.opencl.syntax import OPENCL
from dlc.emission.c.kernel import KernelSource, emit
from dlc.ir import func
from dlc.target import Target


def emit_kernel(kernel: func.FuncOp, target: Target) -> KernelSource:
    """Emit the OpenCL C of a kernel at the end of the loops stage.

    Raises UnsupportedError for an op that cannot be emitted, or a type that the device does not support.
    """
    return emit(kernel, target, OPENCL)

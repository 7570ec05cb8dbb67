"""Run kernels of the loops stage on an OpenCL device, for the tests in this folder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from dlc.backends.opencl.emit import emit_kernel
from dlc.ir import func
from dlc.runtime.opencl.build import compiler_options
from dlc.runtime.opencl.driver import opencl
from dlc.target import OPENCL_PROFILES, Target
from tests.backends.opencl.work_item_emulation import emulated

PROFILES = [pytest.param(OPENCL_PROFILES[name], id=name) for name in ("opencl:cpu128", "opencl:cpu512")]


_contexts: list[Any] = []


@cache
def queue() -> Any:
    """Return a queue of the first device; skip the test if there is none.

    Keep its context alive separately: Intel's runtime frees a context that only a queue references.
    """
    cl = opencl()
    try:
        devices = [d for p in cl.get_platforms() for d in p.get_devices()]
    except cl.Error:
        devices = []
    if not devices:
        pytest.skip("no OpenCL device")
    _contexts.append(cl.Context([devices[0]]))
    return cl.CommandQueue(_contexts[0])


def on_device(profile: Target) -> Target:
    """Return the profile without the float types that the device lacks."""
    extensions = queue().device.extensions.split()
    has_f16, has_f64 = (f"cl_khr_fp{bits}" in extensions for bits in (16, 64))
    return replace(profile, has_f16=profile.has_f16 and has_f16, has_f64=profile.has_f64 and has_f64)


def run(kernel: func.FuncOp, arrays: Sequence[np.ndarray], profile: Target, *, alone: bool = False) -> list[np.ndarray]:
    """Run all grids of a kernel on copies of the arrays and return the copies; `alone` as in `emulated`."""
    cl, source, q = opencl(), emulated(emit_kernel(kernel, on_device(profile)), alone=alone), queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        program = cl.Program(q.context, source.text).build(compiler_options(q.device), cache_dir=False)
    guarded = [np.concatenate([a.reshape(-1).view(np.uint8), np.full(64, 0xA5, np.uint8)]) for a in arrays]
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(q.context, flags, hostbuf=g) for g in guarded]
    for g, grid in enumerate(source.grids):
        if groups := int(grid.groups):
            code = cl.Kernel(program, f"{source.name}_{g}")
            arguments = [argument for buffer in buffers for argument in (buffer, np.int64(0))]
            code(q, (groups * grid.items,), (grid.items,), *arguments)
    results: list[np.ndarray] = []
    for array, copy, buffer in zip(arrays, guarded, buffers, strict=True):
        cl.enqueue_copy(q, copy, buffer)
        assert (copy[-64:] == 0xA5).all(), "the kernel wrote behind a buffer"
        results.append(copy[:-64].view(array.dtype).reshape(array.shape))
    return results

"""Run kernels of the loops stage as machine code, for the tests in this folder."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from dlc.backends.cpu.llvm import compile_text
from dlc.dialects.registry import make_context
from dlc.emission.llvm.kernel import emit_kernel
from dlc.ir import func, parse_module
from dlc.runtime.cpu.code.loader import load_object
from dlc.target import CPU_LEVELS, Target
from tests import targets
from tests.targets import level

# pytest parameters.
LEVELS = [level(name, CPU_LEVELS[name]) for name in targets.LEVELS]


def parse_kernel(text: str) -> func.FuncOp:
    """Return the only function of a module, verified."""
    module = parse_module(make_context(), text)
    module.verify()
    (kernel,) = module.ops
    assert isinstance(kernel, func.FuncOp)
    return kernel


def guarded_copy(array: np.ndarray) -> np.ndarray:
    """Return a copy that is aligned only to its elements, followed by a guard that `run` checks."""
    raw = np.full(array.nbytes + 192, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64 + array.itemsize
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def run(kernel: func.FuncOp, arrays: Sequence[np.ndarray], target: Target) -> list[np.ndarray]:
    """Run all grids of a kernel on copies of the arrays and return the copies."""
    emitted = emit_kernel(kernel, target)
    code = load_object(compile_text(emitted.text, target))
    buffers = [guarded_copy(a) for a in arrays]
    pointers = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
    for grid, tasks in enumerate(emitted.grids):
        task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address(f"{kernel.sym_name.data}.{grid}"))
        for i in range(tasks):
            task(ctypes.addressof(pointers), i)
    for buffer in buffers:
        guard = (ctypes.c_uint8 * 64).from_address(buffer.ctypes.data + buffer.nbytes)
        assert bytes(guard) == b"\xa5" * 64, "the kernel wrote behind a buffer"
    return buffers


def grid(body: str, arguments: str, points: int = 1) -> str:
    """Return the text of a kernel with one grid over %p."""
    return f"""
    func.func @k({arguments}) attributes {{kernel}} {{
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %points = arith.constant {points} : index
      "scf.parallel"(%zero, %points, %one) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> ({{
      ^bb0(%p: index):
        {body}
        "scf.reduce"() : () -> ()
      }}) {{level = "grid"}} : (index, index, index) -> ()
      func.return
    }}"""

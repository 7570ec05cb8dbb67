"""Kernels to native code, each by itself: the rest of its stages, LLVM IR text, an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import perf_counter

from dlc.backends.cpu.emit import KernelText, emit_kernel
from dlc.backends.cpu.llvm import compile_text
from dlc.dialects.dl.program import KernelOp
from dlc.errors import CompileError
from dlc.instrument.manager import PassManager
from dlc.instrument.report import PassRecord
from dlc.ir import Context, ModuleOp, Operation
from dlc.passes.base import Stage, kernels_of
from dlc.target import Target
from dlc.workers import forked_map

# LLVM must not be at work in another thread when workers are forked: they would inherit its lock, held for ever.
_compiling = Lock()


@dataclass(frozen=True)
class KernelCode:
    """A kernel's object, the number of tasks of each of its grids, and how the time went."""

    name: str
    ir: KernelText
    object: bytes
    passes: tuple[PassRecord, ...]
    emission: float
    llvm: float


def compile_kernels(
    module: ModuleOp, stages: Sequence[Stage], target: Target, context: Context, *, check: bool, processes: int
) -> list[KernelCode]:
    """The code of every kernel of `module`, which need not have gone through `stages` yet; the module stays as it is.

    Kernels are shared out to processes: LLVM's Python binding runs one thread at a time.
    """
    kernels: list[Operation] = [*(op for op in module.ops if isinstance(op, KernelOp)), *kernels_of(module)]
    # The largest first, so that no process is left with it at the end.
    kernels.sort(key=lambda op: -sum(1 for _ in op.walk()))
    work = partial(_compile_kernel, stages=stages, target=target, context=context, check=check)
    with _compiling:
        return forked_map(work, kernels, processes)


def _compile_kernel(kernel: Operation, stages: Sequence[Stage], target: Target, context: Context, check: bool) -> KernelCode:
    module = ModuleOp([kernel.clone()])
    manager = PassManager(context, stages, check=check)
    manager.run(module, stages)
    lowered = list(kernels_of(module))
    if len(lowered) != 1:
        raise CompileError(f"a kernel became {len(lowered)} functions; the pipeline must take it through the loops stage")
    began = perf_counter()
    ir = emit_kernel(lowered[0], target)
    emitted = perf_counter()
    code = compile_text(ir.text, target)
    return KernelCode(lowered[0].sym_name.data, ir, code, tuple(manager.records), emitted - began, perf_counter() - emitted)

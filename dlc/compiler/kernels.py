"""Kernels to native code, each by itself: the rest of its stages, LLVM IR text, an object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import TypeVar, cast

from dlc.backends.cpu.llvm import compile_text
from dlc.dialects.dl.program import KernelOp
from dlc.emission.llvm.kernel import KernelText, emit_kernel
from dlc.errors import CompileError
from dlc.instrument.manager import PassManager
from dlc.instrument.report import PassRecord
from dlc.ir import Context, ModuleOp, Operation, func
from dlc.passes.base import Stage, kernels_of
from dlc.target import Target
from dlc.workers import forked_map

T = TypeVar("T")

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
    module: ModuleOp,
    stages: Callable[[str], Sequence[Stage]],
    target: Target,
    context: Context,
    *,
    check: bool,
    processes: int,
) -> list[KernelCode]:
    """The code of every kernel of `module`; the module stays as it is.

    `stages` says what a kernel, by its name, still has to go through.
    """

    def compiled(kernel: Operation) -> KernelCode:
        return _compile_kernel(kernel, stages(symbol_of(kernel)), target, context, check)

    return map_kernels(compiled, all_kernels(module), processes)


def symbol_of(kernel: Operation) -> str:
    """The name of a kernel, at whatever stage it is."""
    return kernel.symbol if isinstance(kernel, KernelOp) else cast(func.FuncOp, kernel).sym_name.data


def all_kernels(module: ModuleOp) -> list[Operation]:
    """The kernels of a module, at whatever stage they are."""
    return [*(op for op in module.ops if isinstance(op, KernelOp)), *kernels_of(module)]


def map_kernels(function: Callable[[Operation], T], kernels: Sequence[Operation], processes: int) -> list[T]:
    """`function` of each kernel, shared out to processes, since Python and LLVM's binding run one thread at a time.

    Results come in the order of the kernels' sizes.
    """
    # The largest first, so that no process is left with it at the end.
    ordered = sorted(kernels, key=lambda op: -sum(1 for _ in op.walk()))
    with _compiling:
        return forked_map(function, ordered, processes)


def lower_kernel(
    kernel: Operation, stages: Sequence[Stage], context: Context, *, check: bool
) -> tuple[func.FuncOp, tuple[PassRecord, ...]]:
    """A copy of a kernel at the end of `stages`, and the passes that it took.

    Raises CompileError when it is not one function then.
    """
    module = ModuleOp([kernel.clone()])
    manager = PassManager(context, stages, check=check)
    manager.run(module, stages)
    lowered = list(kernels_of(module))
    if len(lowered) != 1:
        raise CompileError(f"a kernel became {len(lowered)} functions; the pipeline must take it through the loops stage")
    return lowered[0], tuple(manager.records)


def _compile_kernel(kernel: Operation, stages: Sequence[Stage], target: Target, context: Context, check: bool) -> KernelCode:
    lowered, passes = lower_kernel(kernel, stages, context, check=check)
    began = perf_counter()
    ir = emit_kernel(lowered, target)
    emitted = perf_counter()
    code = compile_text(ir.text, target)
    return KernelCode(lowered.sym_name.data, ir, code, passes, emitted - began, perf_counter() - emitted)

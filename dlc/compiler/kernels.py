"""Kernels to code, each by itself: the rest of its stages, text, and what the backend makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any, TypeVar, cast

from dlc.backends.base import KernelBackend
from dlc.compiler.compilation import Compilation
from dlc.dialects.dl.programs.program import KernelOp
from dlc.errors import CompileError, UnsupportedError
from dlc.instrument.manager import Observer, PassManager
from dlc.instrument.provenance import dispatches
from dlc.instrument.recording import Record
from dlc.instrument.report import KernelReport, PassRecord, Report
from dlc.ir import Context, ModuleOp, Operation, f64, forget, func
from dlc.machine.cpus import usable_cpus
from dlc.machine.workers import forked_map
from dlc.passes.base import Stage, kernels_of

T = TypeVar("T")

# LLVM must not be at work in another thread when workers are forked: they would inherit its lock, held for ever.
_compiling = Lock()


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's text and code, as its backend has them, and how the time went: in passes, in emission, in its compiler.

    `record` is what became of it on the way, if that is recorded.
    """

    name: str
    text: Any
    code: Any
    passes: tuple[PassRecord, ...]
    emission: float
    compilation: float
    record: Record | None = None

    def note(self, report: Report, backend: KernelBackend[Any, Any], runs: int) -> None:
        """Notes it in a report, for a program that runs it so often."""
        report.passes.extend(self.passes)
        for record in self.passes:
            report.add(record.stage, record.seconds)
        report.add("emission", self.emission)
        report.add(backend.compiler, self.compilation)
        report.kernels.append(KernelReport(self.name, runs, backend.size(self.code), self.emission + self.compilation))


def compile_kernels(
    c: Compilation,
    backend: KernelBackend[Any, Any],
    kernels: Sequence[Operation],
    stages: Callable[[str], Sequence[Stage]],
    context: Context,
    meanwhile: Callable[[], None],
) -> list[CompiledKernel]:
    """The code of kernels, shared out to processes; the kernels stay as they are.

    `stages` says what a kernel, by its name, still has to go through. What is to be done `meanwhile` this process does while
    others have begun.
    """

    def compiled(kernel: Operation) -> CompiledKernel:
        return _compile_kernel(kernel, stages(symbol_of(kernel)), c, backend, context)

    return map_kernels(compiled, kernels, c.options.workers or usable_cpus(), partial(c.tell, "kernels"), meanwhile)


def symbol_of(kernel: Operation) -> str:
    """The name of a kernel, at whatever stage it is."""
    return kernel.symbol if isinstance(kernel, KernelOp) else cast(func.FuncOp, kernel).sym_name.data


def all_kernels(module: ModuleOp) -> list[Operation]:
    """The kernels of a module, at whatever stage they are."""
    return [*(op for op in module.ops if isinstance(op, KernelOp)), *kernels_of(module)]


def map_kernels(
    function: Callable[[Operation], T],
    kernels: Sequence[Operation],
    processes: int,
    tell: Callable[[str, int, int], None] = lambda name, done, total: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[T]:
    """`function` of each kernel, shared out to processes, since Python and LLVM's binding run one thread at a time.

    Results come in the order of the kernels' sizes. `tell` is told which kernel comes next, and how many there are. What is
    to be done `meanwhile` is done by this process, which takes part later then.
    """
    # The largest first, so that no process is left with it at the end.
    ordered = sorted(kernels, key=lambda op: -sum(1 for _ in op.walk()))
    with _compiling:
        return forked_map(function, ordered, processes, lambda k: tell(symbol_of(ordered[k]), k, len(ordered)), meanwhile)


def lower_kernel(
    kernel: Operation, stages: Sequence[Stage], context: Context, *, check: bool, observer: Observer | None = None
) -> tuple[func.FuncOp, tuple[PassRecord, ...]]:
    """A copy of a kernel at the end of `stages`, and the passes that it took, of each of which `observer` is told.

    Raises CompileError when it is not one function then.
    """
    module = ModuleOp([kernel.clone()])
    manager = PassManager(context, stages, check=check, observer=observer)
    manager.run(module, stages, lambda: ModuleOp([kernel.clone()]))
    lowered = list(kernels_of(module))
    if len(lowered) != 1:
        raise CompileError(f"a kernel became {len(lowered)} functions; the pipeline must take it through the loops stage")
    return lowered[0], tuple(manager.records)


def require_numbers(c: Compilation, module: ModuleOp) -> None:
    """Raises UnsupportedError, listing the kernels, for numbers that the target does not compute with."""
    if c.backend.target.doubles:
        return
    runs = dispatches(module)
    problems = [
        f"kernel {symbol_of(k)}: f64 ({', '.join(runs.get(symbol_of(k), [()])[0]) or 'of no known origin'})"
        for k in all_kernels(module)
        if any(getattr(v.type, "element_type", v.type) == f64 for op in k.walk() for v in (*op.operands, *op.results))
    ]
    if problems:
        raise UnsupportedError(
            f"{c.backend} does not compute in f64; run the model on the target cpu, or in f32:\n  " + "\n  ".join(problems),
            problems,
        )
    if c.options.numerics == "strict":
        raise UnsupportedError(f"{c.backend}: strict numerics need f64, which it lacks; use numerics='default'")


def _compile_kernel(
    kernel: Operation, stages: Sequence[Stage], c: Compilation, backend: KernelBackend[Any, Any], context: Context
) -> CompiledKernel:
    watch = c.recorder.of_kernel(kernel, stages) if c.recorder is not None else None
    observer = watch.after_pass if watch is not None else None
    lowered, passes = lower_kernel(kernel, stages, context, check=c.options.verify, observer=observer)
    name, began = lowered.sym_name.data, perf_counter()
    text = backend.emit(lowered) if watch is None else backend.emit_traced(lowered, watch.lines)
    emitted = perf_counter()
    code, listings = (backend.compile_kernel(name, text), ()) if watch is None else backend.compile_listed(name, text)
    made = CompiledKernel(name, text, code, passes, emitted - began, perf_counter() - emitted)
    if watch is None:
        forget(cast(Operation, lowered.parent_op()))
        return made
    for listing in listings:
        watch.add_code(listing.form, backend.compiler, listing.text, listing.places, listing.lines)
    watch.record.passes = passes
    return replace(made, record=watch.record)

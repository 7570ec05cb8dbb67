"""Kernels to code, each by itself: the rest of its stages, text, and what the backend makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from dlc.instrument.recording import Record, Recorder
from dlc.instrument.report import KernelReport, PassRecord, Report
from dlc.ir import Context, ModuleOp, Operation, f64, forget, func
from dlc.machine.cpus import usable_cpus
from dlc.machine.workers import forked_map
from dlc.passes.base import Stage, kernels_of

T = TypeVar("T")

# LLVM must not be at work in another thread when workers are forked: they would inherit its lock, held for ever.
_compiling = Lock()
# A module costs LLVM one to two milliseconds however little is in it. Kernels are compiled together, so many at most, where
# so many shares are left that no process waits long for another's last one.
_MOST_TOGETHER, _SHARES = 16, 128


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

    def compiled(together: Sequence[Operation]) -> list[CompiledKernel]:
        if c.recorder is None:
            return _compile_together(together, stages, c, backend, context)
        return [_compile_watched(kernel, stages(symbol_of(kernel)), c, backend, context, c.recorder) for kernel in together]

    return map_kernels(compiled, kernels, c.options.workers or usable_cpus(), partial(c.tell, "kernels"), meanwhile)


def symbol_of(kernel: Operation) -> str:
    """The name of a kernel, at whatever stage it is."""
    return kernel.symbol if isinstance(kernel, KernelOp) else cast(func.FuncOp, kernel).sym_name.data


def all_kernels(module: ModuleOp) -> list[Operation]:
    """The kernels of a module, at whatever stage they are."""
    return [*(op for op in module.ops if isinstance(op, KernelOp)), *kernels_of(module)]


def map_kernels(
    function: Callable[[Sequence[Operation]], list[T]],
    kernels: Sequence[Operation],
    processes: int,
    tell: Callable[[str, int, int], None] = lambda name, done, total: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[T]:
    """`function` of kernels, shared out to processes, since Python and LLVM's binding run one thread at a time.

    Results come in the order of the kernels' sizes; where there are many kernels, some are computed together. `tell` is told
    which kernel comes next, and how many there are. What is to be done `meanwhile` is done by this process, which takes part
    later then.
    """
    # The largest first, so that no process is left with it at the end.
    ordered = sorted(kernels, key=lambda op: -sum(1 for _ in op.walk()))
    together = max(1, min(len(ordered) // _SHARES, _MOST_TOGETHER))
    shares = [ordered[k : k + together] for k in range(0, len(ordered), together)]

    def begins(k: int) -> None:
        tell(symbol_of(shares[k][0]), k * together, len(ordered))

    with _compiling:
        return [made for share in forked_map(function, shares, processes, begins, meanwhile) for made in share]


def lower_kernel(
    kernel: Operation, stages: Sequence[Stage], context: Context, *, check: bool, observer: Observer | None = None
) -> tuple[func.FuncOp, tuple[PassRecord, ...]]:
    """A copy of a kernel at the end of `stages`, and the passes that it took, of each of which `observer` is told.

    Raises CompileError when it is not one function then.
    """
    module = ModuleOp([kernel.clone()])
    manager = PassManager(context, stages, check=check, counted=observer is not None, observer=observer)
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


def _compile_together(
    kernels: Sequence[Operation],
    stages: Callable[[str], Sequence[Stage]],
    c: Compilation,
    backend: KernelBackend[Any, Any],
    context: Context,
) -> list[CompiledKernel]:
    texts: dict[str, Any] = {}
    made: list[tuple[tuple[PassRecord, ...], float]] = []
    for kernel in kernels:
        lowered, passes = lower_kernel(kernel, stages(symbol_of(kernel)), context, check=c.options.verify)
        began = perf_counter()
        texts[lowered.sym_name.data] = backend.emit(lowered)
        made.append((passes, perf_counter() - began))
        forget(cast(Operation, lowered.get_toplevel_object()))
    began = perf_counter()
    codes = backend.compile_kernels(texts)
    each = (perf_counter() - began) / len(kernels)
    return [
        CompiledKernel(name, text, code, passes, emission, each)
        for (name, text), code, (passes, emission) in zip(texts.items(), codes, made, strict=True)
    ]


def _compile_watched(
    kernel: Operation,
    stages: Sequence[Stage],
    c: Compilation,
    backend: KernelBackend[Any, Any],
    context: Context,
    recorder: Recorder,
) -> CompiledKernel:
    watch = recorder.of_kernel(kernel, stages)
    lowered, passes = lower_kernel(kernel, stages, context, check=c.options.verify, observer=watch.after_pass)
    name, began = lowered.sym_name.data, perf_counter()
    text = backend.emit_traced(lowered, watch.lines)
    emitted = perf_counter()
    code, listings = backend.compile_listed(name, text)
    seconds = emitted - began, perf_counter() - emitted
    for listing in listings:
        watch.add_code(listing.form, backend.compiler, listing.text, listing.places, listing.lines)
    watch.record.passes = passes
    return CompiledKernel(name, text, code, passes, *seconds, watch.record)

"""Compile kernels separately: run their remaining stages, emit their text, and compile it with the backend."""

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
from dlc.instrument.compilation_record import CompilationRecorder, PassHistory
from dlc.instrument.manager import Observer, PassManager
from dlc.instrument.provenance import kernel_origins
from dlc.instrument.report import KernelReport, PassRecord, Report
from dlc.ir import Context, ModuleOp, Operation, f64, func, release_op
from dlc.machine.cpus import usable_cpus
from dlc.machine.workers import forked_map
from dlc.passes.base import Stage, kernels_of

T = TypeVar("T")

# Workers must not be forked while LLVM runs in another thread: they would inherit its lock in the locked state.
_compiling = Lock()
# Each LLVM module costs one to two milliseconds, so kernels are compiled in batches: small enough to keep all processes busy
# until the end.
_MAX_KERNELS_PER_BATCH, _MIN_BATCHES = 16, 64


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's text and code in the types of its backend, with the time spent in passes, emission and compilation.

    If the compilation is recorded, `record` has the kernel after each pass.
    """

    name: str
    text: Any
    code: Any
    passes: tuple[PassRecord, ...]
    emission: float
    compilation: float
    record: PassHistory | None = None

    def note(self, report: Report, backend: KernelBackend[Any, Any], runs: int) -> None:
        """Add the kernel to the report of a program that runs it `runs` times."""
        report.passes.extend(self.passes)
        for record in self.passes:
            report.add(record.stage, record.seconds)
        report.add("emission", self.emission)
        report.add(backend.compiler, self.compilation)
        report.kernels.append(KernelReport(self.name, runs, backend.size(self.code), self.emission + self.compilation))


def compile_kernels(
    compilation: Compilation,
    backend: KernelBackend[Any, Any],
    kernels: Sequence[Operation],
    stages: Callable[[str], Sequence[Stage]],
    context: Context,
    while_waiting: Callable[[], None],
) -> list[CompiledKernel]:
    """Compile kernels in parallel processes; the kernels themselves are not changed.

    `stages` returns the remaining stages of a kernel by name. `while_waiting` runs in this process once the workers run.
    """

    def compile_batch(batch: Sequence[Operation]) -> list[CompiledKernel]:
        if compilation.recorder is None:
            return _compile_batch(batch, stages, compilation, backend, context)
        return [
            _compile_recorded(kernel, stages(symbol_of(kernel)), compilation, backend, context, compilation.recorder)
            for kernel in batch
        ]

    return map_kernels(
        compile_batch,
        kernels,
        compilation.options.workers or usable_cpus(),
        partial(compilation.report_progress, "kernels"),
        while_waiting,
    )


def symbol_of(kernel: Operation) -> str:
    """Return the name of a kernel, at any stage."""
    return kernel.symbol if isinstance(kernel, KernelOp) else cast(func.FuncOp, kernel).sym_name.data


def all_kernels(module: ModuleOp) -> list[Operation]:
    """Return the kernels of a module, at any stage."""
    return [*(op for op in module.ops if isinstance(op, KernelOp)), *kernels_of(module)]


def map_kernels(
    function: Callable[[Sequence[Operation]], list[T]],
    kernels: Sequence[Operation],
    processes: int,
    on_progress: Callable[[str, int, int], None] = lambda name, done, total: None,
    while_waiting: Callable[[], None] = lambda: None,
) -> list[T]:
    """Apply `function` to batches of kernels in worker processes, since Python and LLVM's binding run one thread at a time.

    Results are in the order of decreasing kernel size. `on_progress` is called with the next kernel's name, the number of
    finished kernels and their total. `while_waiting` runs in this process, which joins the workers afterwards.
    """
    # Longest processing time first: no process is left with a large kernel at the end.
    ordered = sorted(kernels, key=lambda op: -sum(1 for _ in op.walk()))
    batch_size = max(1, min(len(ordered) // _MIN_BATCHES, _MAX_KERNELS_PER_BATCH))
    batches = [ordered[k : k + batch_size] for k in range(0, len(ordered), batch_size)]

    def on_start(k: int) -> None:
        on_progress(symbol_of(batches[k][0]), k * batch_size, len(ordered))

    with _compiling:
        return [compiled for batch in forked_map(function, batches, processes, on_start, while_waiting) for compiled in batch]


def lower_kernel(
    kernel: Operation, stages: Sequence[Stage], context: Context, *, check: bool, observer: Observer | None = None
) -> tuple[func.FuncOp, tuple[PassRecord, ...]]:
    """Return a copy of a kernel lowered through `stages`, and the passes that ran; `observer` is called after each pass.

    Raises CompileError unless the result is one function.
    """
    module = ModuleOp([kernel.clone()])
    manager = PassManager(context, stages, check=check, count_ops=observer is not None, observer=observer)
    manager.run(module, stages, lambda: ModuleOp([kernel.clone()]))
    lowered = list(kernels_of(module))
    if len(lowered) != 1:
        raise CompileError(f"a kernel became {len(lowered)} functions; the pipeline must take it through the loops stage")
    return lowered[0], tuple(manager.records)


def require_supported_dtypes(compilation: Compilation, module: ModuleOp) -> None:
    """Raise UnsupportedError, listing the kernels, if the target does not support their dtypes."""
    if compilation.backend.target.has_f64:
        return
    runs = kernel_origins(module)
    problems = [
        f"kernel {symbol_of(k)}: f64 ({', '.join(runs.get(symbol_of(k), [()])[0]) or 'of unknown origin'})"
        for k in all_kernels(module)
        if any(getattr(v.type, "element_type", v.type) == f64 for op in k.walk() for v in (*op.operands, *op.results))
    ]
    if problems:
        raise UnsupportedError(
            f"{compilation.backend} does not compute in f64; run the model on the target cpu, or in f32:\n  "
            + "\n  ".join(problems),
            problems,
        )
    if compilation.options.numerics == "strict":
        raise UnsupportedError(f"{compilation.backend}: strict numerics need f64, which it lacks; use numerics='default'")


def _compile_batch(
    kernels: Sequence[Operation],
    stages: Callable[[str], Sequence[Stage]],
    compilation: Compilation,
    backend: KernelBackend[Any, Any],
    context: Context,
) -> list[CompiledKernel]:
    texts: dict[str, Any] = {}
    kernel_records: list[tuple[tuple[PassRecord, ...], float]] = []
    for kernel in kernels:
        lowered, passes = lower_kernel(kernel, stages(symbol_of(kernel)), context, check=compilation.options.verify)
        start = perf_counter()
        texts[lowered.sym_name.data] = backend.emit(lowered)
        kernel_records.append((passes, perf_counter() - start))
        release_op(cast(Operation, lowered.get_toplevel_object()))
    start = perf_counter()
    codes = backend.compile_kernels(texts)
    seconds_per_kernel = (perf_counter() - start) / len(kernels)
    return [
        CompiledKernel(name, text, code, passes, emission, seconds_per_kernel)
        for (name, text), code, (passes, emission) in zip(texts.items(), codes, kernel_records, strict=True)
    ]


def _compile_recorded(
    kernel: Operation,
    stages: Sequence[Stage],
    compilation: Compilation,
    backend: KernelBackend[Any, Any],
    context: Context,
    recorder: CompilationRecorder,
) -> CompiledKernel:
    kernel_recorder = recorder.kernel_recorder(kernel, stages)
    lowered, passes = lower_kernel(
        kernel, stages, context, check=compilation.options.verify, observer=kernel_recorder.after_pass
    )
    name, start = lowered.sym_name.data, perf_counter()
    text = backend.emit_with_locations(lowered, kernel_recorder.lines)
    emitted = perf_counter()
    code, listings = backend.compile_with_listing(name, text)
    seconds = emitted - start, perf_counter() - emitted
    for listing in listings:
        kernel_recorder.add_code(listing.format, backend.compiler, listing.text, listing.line_origins, listing.lines)
    kernel_recorder.record.passes = passes
    return CompiledKernel(name, text, code, passes, *seconds, kernel_recorder.record)

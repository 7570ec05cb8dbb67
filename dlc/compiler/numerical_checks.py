"""Check every step between a program and its native results numerically: each pass, the code of each kernel, the whole program.

Up to fusion, passes are checked as they run. Then each kernel is compiled into one program that runs it on its captured
inputs: if the native results are correct, all passes of the kernel were correct. Only a kernel with wrong results is lowered
again with a check after each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from time import perf_counter

from dlc.backends.base import KernelBackend
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.compiler.program import Program
from dlc.compiler.segment_checks import check_segments
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.programs.program import KernelOp
from dlc.dialects.entry import entry_of
from dlc.errors import UnsupportedError
from dlc.instrument.capture import KernelRun
from dlc.instrument.check import Check, CheckedStep, Checker, kernel_count_text, kernel_of
from dlc.instrument.manager import PassManager
from dlc.instrument.report import Report
from dlc.instrument.reproducer import standalone_kernels
from dlc.instrument.verify import illegal_ops
from dlc.ir import ModuleOp, Operation
from dlc.passes.base import kernels_of
from dlc.pipelines import HOST, KERNEL_STAGES
from dlc.runtime.models.model import Run
from dlc.weights import WeightStore

# Compiles a program to a function that runs it.
Compile = Callable[[Compilation], Run]


def check(
    c: Compilation,
    arrays: Sequence[Array],
    compile: Compile,
    *,
    every_kernel_pass: bool = True,
    tolerance: float | None = None,
    folder: Path | None = None,
    checks: list[Check] | None = None,
) -> None:
    """Raise WrongResultsError for the first step that changes the results of the program; append passed checks to `checks`.

    Kernels are checked after each of their passes if `every_kernel_pass`, else only those whose native code is wrong. A program
    with data-dependent sizes is checked segment by segment, for the sizes that the inputs determine.

    Raises UnsupportedError for symbolic input dimensions, and what compiling raises.
    """
    program = c.program
    if program.sizes:
        raise UnsupportedError(
            f"{program.name}: only programs with static input shapes can be checked; set the shapes of the inputs"
        )

    def check_static(compilation: Compilation, inputs: Sequence[Array]) -> None:
        names = [info.name for info in compilation.program.outputs]
        checker = Checker(inputs, names, tolerance=tolerance, folder=folder, checks=checks)
        _ProgramCheck(compilation, inputs, compile, checker).run(every_kernel_pass)

    if program.is_static:
        check_static(c, arrays)
        return
    checker = Checker(arrays, [info.name for info in program.outputs], tolerance=tolerance, folder=folder, checks=checks)
    checker.expect(program.module, check_segments(c, arrays, check_static))
    _ProgramCheck(c, arrays, compile, checker).native_program()


def check_first_call(run: Run, check: Callable[[Sequence[Array]], object]) -> Run:
    """Return a function like `run` that calls `check` with the inputs of its first call."""
    lock, done = Lock(), False

    def checked(arrays: Sequence[Array]) -> Sequence[Array]:
        nonlocal done
        with lock:
            if not done:
                check(arrays)
                done = True
        return run(arrays)

    return checked


class _ProgramCheck:
    def __init__(self, c: Compilation, arrays: Sequence[Array], compile: Compile, checker: Checker) -> None:
        # A cached program would skip the passes that are to be checked.
        options = replace(c.options, dump_ir=None, cache=False, check_each_pass=False)
        self.c = replace(c, options=options, report=Report())
        self.arrays, self.compile, self.checker = arrays, compile, checker
        self.lowering = Lowering(self.c, checker)
        # A custom pipeline may stop before kernels can be emitted.
        self.has_all_stages = options.pipeline is None and c.program.remaining_passes is None

    def run(self, every_kernel_pass: bool) -> None:
        lowering, checker = self.lowering, self.checker
        checker.start(lowering.module, lowering.weights)
        lowering.run(lowering.stages(kernels=False))
        kernels = lowering.module.clone()
        if every_kernel_pass or not self.has_all_stages:
            lowering.run(lowering.stages(kernels=True))
            kernels = lowering.module.clone()
        lowering.host()
        if isinstance(self.c.backend, KernelBackend) and (self.has_all_stages or self.is_lowered(kernels)):
            self.native_kernels(kernels)
            self.native_program()

    def is_lowered(self, module: ModuleOp) -> bool:
        """Return whether the kernels can be emitted and the plan includes the host stage."""
        loops, functions = self.c.backend.stages(self.c.options)[-1], list(kernels_of(module))
        illegal = any(True for _ in illegal_ops(ModuleOp([k.clone() for k in functions]), loops))
        remaining_kernel_stages = any(isinstance(op, KernelOp) for op in module.ops)
        return (
            bool(functions)
            and not illegal
            and not remaining_kernel_stages
            and any(s.name == HOST.name for s in self.lowering.plan)
        )

    def native_kernels(self, module: ModuleOp) -> None:
        """Run the code of each kernel on its captured inputs."""
        began, runs = perf_counter(), dict[str, KernelRun]()
        for run in self.checker.trace.runs:
            runs.setdefault(run.kernel, run)
        captured_runs = [(kernel, run) for name, run in runs.items() if (kernel := kernel_of(module, name)) is not None]
        self.c.report_progress("native code", f"{len(captured_runs)} kernels")
        remaining = [
            p for s in self.lowering.plan if s.name in (*self.remaining_kernel_stages(module), HOST.name) for p in s.passes
        ]
        benchmark = Program(
            standalone_kernels(captured_runs), WeightStore(), self.c.program.name, ",".join(map(str, remaining))
        )
        results = iter(
            self.compile(self.c.for_program(benchmark, self.c.options))([a for _, run in captured_runs for a in run.inputs])
        )
        max_error = 0.0
        for kernel, run in captured_runs:
            results_of_kernel = [next(results) for _ in run.outputs]
            if not self.checker.matches(run, results_of_kernel):
                self.kernel_passes(kernel, module)
            max_error = max(max_error, self.checker.require_match(self.step("native code"), run, results_of_kernel))
        self.checker.checks.append(
            Check(self.step("native code"), kernel_count_text(len(captured_runs)), max_error, perf_counter() - began)
        )

    def kernel_passes(self, kernel: Operation, module: ModuleOp) -> None:
        """Lower one kernel with a check after each pass."""
        kernel_module = ModuleOp([entry_of(module).clone(), kernel.clone()])
        self.checker.restart_from(kernel_module)
        manager = PassManager(self.lowering.context, self.lowering.plan, observer=self.checker.after_pass)
        manager.run(kernel_module, [s for s in self.lowering.plan if s.name in self.remaining_kernel_stages(module)])

    def native_program(self) -> None:
        """Run and check the whole program, as a user would."""
        began, program = perf_counter(), self.c.program
        self.c.report_progress("native code", "the program")
        step = CheckedStep("execution", "the native program", ",".join(str(p) for s in self.lowering.plan for p in s.passes))
        self.checker.restart_from(program.module, program.weights)
        max_error = self.checker.require_outputs(step, self.compile(self.c)(self.arrays))
        self.checker.checks.append(Check(step, "outputs", max_error, perf_counter() - began))

    def remaining_kernel_stages(self, module: ModuleOp) -> tuple[str, ...]:
        """Return the names of the remaining stages of the kernels of `module`."""
        return () if any(True for _ in kernels_of(module)) else KERNEL_STAGES

    def step(self, name: str) -> CheckedStep:
        """Return a record of a checked step after all passes."""
        host = (p for s in self.lowering.plan if s.name == HOST.name for p in s.passes)
        return CheckedStep("emission", name, ",".join(map(str, host)))

"""Numerical checks of a compilation: after each pass, for the native code of each kernel, and for the whole program.

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
    compilation: Compilation,
    arrays: Sequence[Array],
    compile: Compile,
    *,
    every_kernel_pass: bool = True,
    tolerance: float | None = None,
    folder: Path | None = None,
    checks: list[Check] | None = None,
    target: str | None = None,
) -> None:
    """Raise WrongResultsError for the first step that changes the results of the program; append the checks that pass to
    `checks`.

    If `every_kernel_pass`, every kernel is checked after each pass; otherwise only kernels whose native code is wrong. A
    program with data-dependent sizes is checked segment by segment, for the sizes that the inputs determine. `target` is the
    name of the target on a command line, if it is not that of the backend.

    Raises UnsupportedError for symbolic input dimensions, and the errors of compilation.
    """
    program = compilation.program
    if program.sizes:
        raise UnsupportedError(
            f"{program.name}: only programs with static input shapes can be checked; set the shapes of the inputs"
        )

    def make_checker(program: Program, inputs: Sequence[Array]) -> Checker:
        names, target_name = [info.name for info in program.outputs], target or str(compilation.backend)
        return Checker(inputs, names, tolerance=tolerance, folder=folder, checks=checks, target=target_name)

    def check_static(compilation: Compilation, inputs: Sequence[Array]) -> None:
        checker = make_checker(compilation.program, inputs)
        _ProgramCheck(compilation, inputs, compile, checker).run(every_kernel_pass)

    if program.is_static:
        check_static(compilation, arrays)
        return
    checker = make_checker(program, arrays)
    checker.expect(program.module, check_segments(compilation, arrays, check_static))
    _ProgramCheck(compilation, arrays, compile, checker).check_native_program()


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
    def __init__(self, compilation: Compilation, arrays: Sequence[Array], compile: Compile, checker: Checker) -> None:
        # A cached program would skip the passes that are to be checked.
        options = replace(compilation.options, dump_ir=None, cache=False, check_each_pass=False)
        self.compilation = replace(compilation, options=options, report=Report())
        self.arrays, self.compile, self.checker = arrays, compile, checker
        self.lowering = Lowering(self.compilation, checker)
        # A custom pipeline may end before the stage from which kernels are emitted.
        self.has_all_stages = options.pipeline is None and compilation.program.remaining_passes is None

    def run(self, every_kernel_pass: bool) -> None:
        lowering, checker = self.lowering, self.checker
        checker.start(lowering.module, lowering.weights)
        lowering.run(lowering.stages(kernels=False))
        kernels = lowering.module.clone()
        if every_kernel_pass or not self.has_all_stages:
            lowering.run(lowering.stages(kernels=True))
            kernels = lowering.module.clone()
        lowering.host()
        if isinstance(self.compilation.backend, KernelBackend) and (self.has_all_stages or self.is_lowered(kernels)):
            self.check_native_kernels(kernels)
            self.check_native_program()

    def is_lowered(self, module: ModuleOp) -> bool:
        """Return whether the kernels are legal for emission and the pipeline includes the host stage."""
        loops, functions = self.compilation.backend.stages(self.compilation.options)[-1], list(kernels_of(module))
        illegal = any(True for _ in illegal_ops(ModuleOp([k.clone() for k in functions]), loops))
        remaining_kernel_stages = any(isinstance(op, KernelOp) for op in module.ops)
        return (
            bool(functions)
            and not illegal
            and not remaining_kernel_stages
            and any(s.name == HOST.name for s in self.lowering.plan)
        )

    def check_native_kernels(self, module: ModuleOp) -> None:
        """Compile the kernels into one program, run each on its captured inputs, and check the results."""
        start, runs = perf_counter(), dict[str, KernelRun]()
        for run in self.checker.trace.runs:
            runs.setdefault(run.kernel, run)
        captured_runs = [(kernel, run) for name, run in runs.items() if (kernel := kernel_of(module, name)) is not None]
        self.compilation.report_progress("native code", f"{len(captured_runs)} kernels")
        remaining = [
            p for s in self.lowering.plan if s.name in (*self.remaining_kernel_stages(module), HOST.name) for p in s.passes
        ]
        kernel_program = Program(
            standalone_kernels(captured_runs), WeightStore(), self.compilation.program.name, ",".join(map(str, remaining))
        )
        results = iter(
            self.compile(self.compilation.for_program(kernel_program, self.compilation.options))(
                [a for _, run in captured_runs for a in run.inputs]
            )
        )
        max_error = 0.0
        for kernel, run in captured_runs:
            results_of_kernel = [next(results) for _ in run.outputs]
            if not self.checker.matches(run, results_of_kernel):
                self.check_kernel_passes(kernel, module)
            max_error = max(max_error, self.checker.require_match(self.emission_step("native code"), run, results_of_kernel))
        self.checker.checks.append(
            Check(self.emission_step("native code"), kernel_count_text(len(captured_runs)), max_error, perf_counter() - start)
        )

    def check_kernel_passes(self, kernel: Operation, module: ModuleOp) -> None:
        """Lower one kernel with a check after each pass."""
        kernel_module = ModuleOp([entry_of(module).clone(), kernel.clone()])
        self.checker.restart_from(kernel_module)
        manager = PassManager(self.lowering.context, self.lowering.plan, observer=self.checker.after_pass)
        manager.run(kernel_module, [s for s in self.lowering.plan if s.name in self.remaining_kernel_stages(module)])

    def check_native_program(self) -> None:
        """Run and check the whole program, as a user would."""
        start, program = perf_counter(), self.compilation.program
        self.compilation.report_progress("native code", "the program")
        step = CheckedStep("execution", "the native program", ",".join(str(p) for s in self.lowering.plan for p in s.passes))
        self.checker.restart_from(program.module, program.weights)
        max_error = self.checker.require_outputs(step, self.compile(self.compilation)(self.arrays))
        self.checker.checks.append(Check(step, "outputs", max_error, perf_counter() - start))

    def remaining_kernel_stages(self, module: ModuleOp) -> tuple[str, ...]:
        """Return the names of the stages that the kernels of `module` have not passed yet."""
        return () if any(True for _ in kernels_of(module)) else KERNEL_STAGES

    def emission_step(self, name: str) -> CheckedStep:
        """Return the record of a step after the last pass."""
        host = (p for s in self.lowering.plan if s.name == HOST.name for p in s.passes)
        return CheckedStep("emission", name, ",".join(map(str, host)))

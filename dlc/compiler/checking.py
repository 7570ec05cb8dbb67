"""Everything between a program and its native results, checked on given inputs: each pass, each kernel's code, the whole.

Up to fusion, passes are checked as they run. Each kernel is then compiled into one program that runs it on what it was
captured with: a kernel whose native results are right has been treated right by all of its passes, so that only a wrong one
is taken through them again, checked after each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from time import perf_counter

from dlc.backends.base import KernelBackend
from dlc.compiler.checking_parts import parts_checked
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.compiler.program import Program
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.programs.program import KernelOp
from dlc.dialects.entry import entry_of
from dlc.errors import UnsupportedError
from dlc.instrument.capture import KernelRun
from dlc.instrument.check import Check, Checker, Step, kernel_of, kernels_text
from dlc.instrument.evidence import alone
from dlc.instrument.manager import PassManager
from dlc.instrument.report import Report
from dlc.instrument.verify import illegal_ops
from dlc.ir import ModuleOp, Operation
from dlc.passes.base import kernels_of
from dlc.pipelines import HOST, KERNEL_STAGES
from dlc.runtime.models.model import Run
from dlc.weights import WeightStore

# Makes the program that runs.
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
    """Raises WrongNumbers for the first step that changes what the program computes; appends to `checks` what was right.

    Kernels are evaluated after each of their passes, or only those whose native code is wrong. Where data decides sizes, each
    part of the program is checked by itself, for those that it decides. Raises UnsupportedError for a program whose inputs have
    open sizes, and what compiling raises.
    """
    program = c.program
    if program.sizes:
        raise UnsupportedError(
            f"{program.name}: only a program whose inputs have known sizes can be checked; give their shapes"
        )

    def checked(of: Compilation, inputs: Sequence[Array]) -> None:
        names = [info.name for info in of.program.outputs]
        checker = Checker(inputs, names, tolerance=tolerance, folder=folder, checks=checks)
        _Check(of, inputs, compile, checker).run(every_kernel_pass)

    if program.is_static:
        checked(c, arrays)
        return
    checker = Checker(arrays, [info.name for info in program.outputs], tolerance=tolerance, folder=folder, checks=checks)
    checker.expect(program.module, parts_checked(c, arrays, checked))
    _Check(c, arrays, compile, checker).native_program()


def first_checked(run: Run, check: Callable[[Sequence[Array]], object]) -> Run:
    """`run`, with a check of the inputs of its first call."""
    lock, done = Lock(), False

    def checked(arrays: Sequence[Array]) -> Sequence[Array]:
        nonlocal done
        with lock:
            if not done:
                check(arrays)
                done = True
        return run(arrays)

    return checked


class _Check:
    def __init__(self, c: Compilation, arrays: Sequence[Array], compile: Compile, checker: Checker) -> None:
        # What is kept from an earlier compilation would not go through the passes that are checked.
        options = replace(c.options, dump_ir=None, cache=False, check_each_pass=False)
        self.c = replace(c, options=options, report=Report())
        self.arrays, self.compile, self.checker = arrays, compile, checker
        self.lowering = Lowering(self.c, checker)
        # The code of passes that somebody chose may end anywhere.
        self.whole = options.pipeline is None and c.program.remaining is None

    def run(self, every_kernel_pass: bool) -> None:
        lowering, checker = self.lowering, self.checker
        checker.start(lowering.module, lowering.weights)
        lowering.run(lowering.stages(kernels=False))
        kernels = lowering.module.clone()
        if every_kernel_pass or not self.whole:
            lowering.run(lowering.stages(kernels=True))
            kernels = lowering.module.clone()
        lowering.host()
        if isinstance(self.c.backend, KernelBackend) and (self.whole or self.is_lowered(kernels)):
            self.native_kernels(kernels)
            self.native_program()

    def is_lowered(self, module: ModuleOp) -> bool:
        """Whether code can be made of the kernels, and the host's stage is part of the plan."""
        loops, functions = self.c.backend.stages(self.c.options)[-1], list(kernels_of(module))
        illegal = any(True for _ in illegal_ops(ModuleOp([k.clone() for k in functions]), loops))
        left = any(isinstance(op, KernelOp) for op in module.ops)
        return bool(functions) and not illegal and not left and any(s.name == HOST.name for s in self.lowering.plan)

    def native_kernels(self, module: ModuleOp) -> None:
        """Runs each kernel's code on what it was captured with."""
        began, runs = perf_counter(), dict[str, KernelRun]()
        for run in self.checker.trace.runs:
            runs.setdefault(run.kernel, run)
        found = [(kernel, run) for name, run in runs.items() if (kernel := kernel_of(module, name)) is not None]
        self.c.tell("native code", f"{len(found)} kernels")
        remaining = [p for s in self.lowering.plan if s.name in (*self.left(module), HOST.name) for p in s.passes]
        bench = Program(alone(found), WeightStore(), self.c.program.name, ",".join(map(str, remaining)))
        results = iter(self.compile(self.c.of(bench, self.c.options))([a for _, run in found for a in run.inputs]))
        off = 0.0
        for kernel, run in found:
            got = [next(results) for _ in run.outputs]
            if not self.checker.is_right(run, got):
                self.kernel_passes(kernel, module)
            off = max(off, self.checker.require(self.step("native code"), run, got))
        self.checker.checks.append(Check(self.step("native code"), kernels_text(len(found)), off, perf_counter() - began))

    def kernel_passes(self, kernel: Operation, module: ModuleOp) -> None:
        """Takes one kernel through its stages, checked after each pass."""
        part = ModuleOp([entry_of(module).clone(), kernel.clone()])
        self.checker.go_back(part)
        manager = PassManager(self.lowering.context, self.lowering.plan, observer=self.checker.after_pass)
        manager.run(part, [s for s in self.lowering.plan if s.name in self.left(module)])

    def native_program(self) -> None:
        """Runs the whole program, as a user would."""
        began, program = perf_counter(), self.c.program
        self.c.tell("native code", "the program")
        step = Step("execution", "the native program", ",".join(str(p) for s in self.lowering.plan for p in s.passes))
        self.checker.go_back(program.module, program.weights)
        off = self.checker.require_outputs(step, self.compile(self.c)(self.arrays))
        self.checker.checks.append(Check(step, "outputs", off, perf_counter() - began))

    def left(self, module: ModuleOp) -> tuple[str, ...]:
        """The stages that the kernels of `module` have before them."""
        return () if any(True for _ in kernels_of(module)) else KERNEL_STAGES

    def step(self, name: str) -> Step:
        """A step after all passes."""
        host = (p for s in self.lowering.plan if s.name == HOST.name for p in s.passes)
        return Step("emission", name, ",".join(map(str, host)))

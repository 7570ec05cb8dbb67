"""Check the results of passes: report the first pass after which results exceed the tolerance, with a reproducer.

    checker = Checker(inputs, names of the outputs)
    checker.start(module, weights)
    PassManager(…, observer=checker.after_pass).run(…)      raises WrongResultsError

The `dl` and `fusion` stages are checked by the program's outputs. From there on each kernel is checked separately on captured
inputs, and the host program by the operands that it passes to the kernels (capture.py). Unchanged code is not evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import NoReturn, TypeVar

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.dialects.dl.programs.program import KernelOp
from dlc.dialects.entry import entry_of, outputs_of
from dlc.errors import CompileError, UnsupportedError
from dlc.instrument import reproducer
from dlc.instrument.capture import (
    CapturedValue,
    EvaluationTrace,
    Evaluator,
    KernelRun,
    OperandMismatch,
    replay,
    rounding_tolerance,
    run_kernel,
)
from dlc.instrument.compare import deviation, largest_deviation, tolerance_of
from dlc.instrument.fault_localization import locate_fault
from dlc.instrument.reproducer import Reproducer
from dlc.ir import ModuleOp, ModulePass, Operation
from dlc.passes.base import Stage, kernels_of
from dlc.weights import WeightStore

T = TypeVar("T")

WEIGHT_EXPRESSIONS = "evaluate-weight-expressions"


@dataclass(frozen=True)
class CheckedStep:
    """A checked step: a pass, or another step of the compiler; `remaining_passes` are the passes from it on."""

    stage: str
    name: str
    remaining_passes: str = ""


@dataclass(frozen=True)
class Check:
    """A step that passed. `checked` describes the compared values; `deviation` is their largest deviation."""

    step: CheckedStep
    checked: str
    deviation: float
    seconds: float


@dataclass(frozen=True)
class Fault:
    """A step that changes results.

    Attributes:
        location: The affected op, kernel or output, as text.
        origins: The ONNX nodes or Python lines of `location`.
        kernel: The kernel whose code is wrong, if it is one kernel.
    """

    step: CheckedStep
    location: str
    origins: tuple[str, ...]
    problem: str
    reproducer: Reproducer
    kernel: str | None = None

    def __str__(self) -> str:
        origins = f"\n  from {', '.join(self.origins)}" if self.origins else ""
        step = f"{self.step.name} (stage {self.step.stage})"
        return f"{step} makes {self.location} wrong: {self.problem}{origins}\n{self.reproducer}"


class WrongResultsError(CompileError):
    """A step of the compiler changes the results of a program."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class Checker:
    """Check one program during compilation, on given inputs.

    `tolerance` is relative to the largest magnitude; None chooses it by dtype. Reproducers are written to `folder`, or a
    temporary folder if None; their command lines name the `target`.
    """

    def __init__(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[str],
        *,
        tolerance: float | None = None,
        folder: Path | None = None,
        checks: list[Check] | None = None,
        target: str = "cpu",
    ) -> None:
        self.checks = checks if checks is not None else []
        self.trace = EvaluationTrace()
        # The module and the weights before the next step to check.
        self.before = ModuleOp([])
        self.weights = WeightStore()
        self._passes_from_before = ""
        self._evaluator = Evaluator(inputs)
        self._outputs = tuple(outputs)
        self._tolerance = tolerance
        self._folder = folder
        self._settings = ["--target", target, *([] if tolerance is None else ["--tolerance", str(tolerance)])]

    def start(self, module: ModuleOp, weights: WeightStore) -> None:
        """Evaluate the program, the reference for all steps."""
        start = perf_counter()
        self.trace = self._evaluator.trace(module, weights)
        self.before, self.weights = module.clone(), weights
        self.checks.append(Check(CheckedStep("", "the program"), "evaluated", 0.0, perf_counter() - start))

    def expect(self, module: ModuleOp, results: Sequence[Array]) -> None:
        """Set the reference results of the program."""
        self.trace = EvaluationTrace(outputs=tuple(CapturedValue(k, array) for k, array in enumerate(results)))
        self.before = module.clone()

    def restart_from(self, module: ModuleOp, weights: WeightStore | None = None) -> None:
        """Continue from an earlier module: the program, or one of its kernels."""
        self.before, self._passes_from_before = module.clone(), ""
        self.weights = weights if weights is not None else self.weights

    def after_pass(self, stage: Stage, current: ModulePass, remaining: Sequence[ModulePass], module: ModuleOp) -> None:
        """Check a pass; raises WrongResultsError if it changed the results of the program."""
        self._check(CheckedStep(stage.name, str(current), ",".join(map(str, remaining))), module, self.weights)

    def after_weights(self, stage: Stage, module: ModuleOp, weights: WeightStore) -> None:
        """Check the evaluation of weight expressions, which precedes the host stage."""
        self._check(CheckedStep(stage.name, WEIGHT_EXPRESSIONS, ",".join(map(str, stage.passes))), module, weights)

    def matches(self, run: KernelRun, got: Sequence[Array]) -> bool:
        """Return whether a kernel's results match the captured ones."""
        return largest_deviation(got, run.outputs)[1] <= self._allowed_deviation(run.tolerance)

    def require_match(self, step: CheckedStep, run: KernelRun, got: Sequence[Array], after: ModuleOp | None = None) -> float:
        """Return the deviation of a kernel's results from the captured ones; raises WrongResultsError above the tolerance."""
        location, relative_deviation = largest_deviation(got, run.outputs)
        allowed = self._allowed_deviation(run.tolerance)
        if relative_deviation > allowed:
            self._fail_kernel(step, run, f"its result {location} {_deviation_text(relative_deviation, allowed)}", after)
        return relative_deviation

    def require_outputs(self, step: CheckedStep, got: Sequence[Array]) -> float:
        """Return the deviation of the program's outputs; raises WrongResultsError above the tolerance."""
        index, difference = largest_deviation(got, self.trace.results)
        allowed = self._allowed_deviation(tolerance_of([*self.trace.arrays, *got]))
        if difference > allowed and difference > self._rounding():
            self._fail(step, f"output {self._outputs[index]}", (), f"it {_deviation_text(difference, allowed)}", self.before)
        return difference

    def _check(self, step: CheckedStep, module: ModuleOp, weights: WeightStore) -> None:
        start = perf_counter()
        step = replace(step, remaining_passes=self._passes_from_before or step.remaining_passes)
        main, kernels = entry_of(module), {k.sym_name.data: k for k in kernels_of(module)}
        check_result, difference = "", 0.0
        if outputs_of(main) or (kernels and not _is_equal(main, entry_of(self.before))):
            check_result = "inputs of kernels"
            self._check_host(step, module, weights)
        if not kernels and not outputs_of(main):
            if not _is_equal(module, self.before):
                check_result, difference = "outputs", self._check_ops(step, module, weights)
        else:
            changed_kernels = [name for name, kernel in kernels.items() if not _is_equal(kernel, kernel_of(self.before, name))]
            if changed_kernels:
                check_result = kernel_count_text(len(changed_kernels))
                difference = max(self._check_kernel(step, module, name) for name in changed_kernels)
        if check_result:
            self.checks.append(Check(step, check_result, difference, perf_counter() - start))
        if outputs_of(main):
            # A bufferized program cannot be traced: reproducers of later faults start from the last module on tensors.
            self._passes_from_before = step.remaining_passes
        else:
            self.before, self.weights = module.clone(), weights

    def _check_ops(self, step: CheckedStep, module: ModuleOp, weights: WeightStore) -> float:
        """Compare the outputs with those of the program before the step."""
        previous_trace = self.trace
        new_trace = self._evaluate(step, module, lambda: self._evaluator.trace(module, weights))
        deviations = [deviation(a, b) for a, b in zip(new_trace.results, previous_trace.results, strict=True)]
        allowed = self._allowed_deviation(tolerance_of(new_trace.arrays))
        wrong = [k for k, difference in enumerate(deviations) if difference > allowed]
        if wrong and max(deviations) > self._rounding():
            k = max(wrong, key=lambda k: deviations[k])
            fault = locate_fault(previous_trace, new_trace, wrong)
            location, origins = f"output {self._outputs[k]}", tuple[str, ...]()
            if fault is not None:
                location, origins = fault.op.name, fault.origins
                location += f" in kernel @{fault.kernel}" if fault.kernel is not None else ""
            self._fail(step, location, origins, f"output {self._outputs[k]} {_deviation_text(deviations[k], allowed)}", module)
        self.trace = new_trace
        return max(deviations, default=0.0)

    def _rounding(self) -> float:
        return rounding_tolerance(self.before, self.weights, self._evaluator.inputs, self.trace.results)

    def _check_host(self, step: CheckedStep, module: ModuleOp, weights: Mapping[str, Array]) -> None:
        """Run the host program with captured kernel results: check the operands of each kernel, and the outputs."""
        inputs, runs = self._evaluator.inputs, self.trace.runs
        try:
            results = self._evaluate(step, module, lambda: replay(module, weights, inputs, runs))
        except OperandMismatch as error:
            description = (
                f"{error.problem} {_deviation_text(error.deviation, error.tolerance)}"
                if error.tolerance is not None
                else error.problem
            )
            self._fail(step, f"the run of kernel @{error.run.kernel}", error.run.origins, description, module)
        for name, got, expected in zip(self._outputs, results, self.trace.results, strict=True):
            difference, allowed = deviation(got, expected), self._allowed_deviation(tolerance_of([expected]))
            if difference > allowed:
                self._fail(step, f"output {name}", (), f"it {_deviation_text(difference, allowed)}", module)

    def _check_kernel(self, step: CheckedStep, module: ModuleOp, name: str) -> float:
        """Run a kernel on its captured inputs and compare its results."""
        run = self.trace.find_run(name)
        if run is None:
            return 0.0
        try:
            got = run_kernel(module, run)
        except UnsupportedError:
            raise
        except Exception as error:
            self._fail_kernel(step, run, f"it cannot be evaluated: {_first_line(error)}", module)
        return self.require_match(step, run, got, module)

    def _evaluate(self, step: CheckedStep, module: ModuleOp, evaluate: Callable[[], T]) -> T:
        """Return the result of `evaluate`; IR that cannot be evaluated is a fault of the step."""
        try:
            return evaluate()
        except (UnsupportedError, OperandMismatch):
            raise
        except Exception as error:
            self._fail(step, "the program", (), f"it cannot be evaluated: {_first_line(error)}", module)

    def _allowed_deviation(self, tolerance: float) -> float:
        return self._tolerance if self._tolerance is not None else tolerance

    def _fail(self, step: CheckedStep, location: str, origins: tuple[str, ...], problem: str, after: ModuleOp) -> NoReturn:
        """Write a reproducer of the program and raise WrongResultsError."""
        folder = reproducer.save(
            self._folder, self.before, after, self._evaluator.inputs, self.weights, step.remaining_passes, self._settings
        )
        raise WrongResultsError(Fault(step, location, origins, problem, folder))

    def _fail_kernel(self, step: CheckedStep, run: KernelRun, problem: str, after: ModuleOp | None) -> NoReturn:
        """Write a reproducer of one kernel and raise WrongResultsError."""
        kernel_before, changed_kernel = (
            kernel_of(self.before, run.kernel),
            kernel_of(after, run.kernel) if after is not None else None,
        )
        assert kernel_before is not None
        after = reproducer.standalone_kernels([(changed_kernel, run)]) if changed_kernel is not None else None
        folder = reproducer.save(
            self._folder,
            reproducer.standalone_kernels([(kernel_before, run)]),
            after,
            run.inputs,
            WeightStore(),
            step.remaining_passes,
            self._settings,
        )
        raise WrongResultsError(Fault(step, f"kernel @{run.kernel}", run.origins, problem, folder, run.kernel))


def kernel_of(module: ModuleOp, name: str) -> Operation | None:
    """Return a kernel by name, at any stage, or None."""
    functions = (k for k in kernels_of(module) if k.sym_name.data == name)
    return next(functions, next((k for k in module.ops if isinstance(k, KernelOp) and k.symbol == name), None))


def kernel_count_text(count: int) -> str:
    """Format a number of kernels."""
    return f"{count} kernel{'s' * (count != 1)}"


def _is_equal(a: Operation, b: Operation | None) -> bool:
    if b is None:
        return False
    # Treat the two parent modules as the same one.
    return a.is_structurally_equivalent(b, {a.parent: b.parent} if a.parent is not None and b.parent is not None else {})


def _deviation_text(difference: float, allowed: float) -> str:
    """Describe a deviation that exceeds the tolerance."""
    if difference == np.inf:
        return "differs in shape, NaN or infinities"
    return f"is off by {difference:.1e} of its largest magnitude; the tolerance is {allowed:.0e}"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]

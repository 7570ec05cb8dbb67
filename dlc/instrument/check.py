"""Checking what passes compute: the first one after which results leave the tolerance is named, with what shows it.

    checker = Checker(inputs, names of the outputs)
    checker.start(module, weights)
    PassManager(…, observer=checker.after_pass).run(…)      raises WrongNumbers

The `dl` and `fusion` stages are checked by the program's outputs. From there on each kernel is checked by itself, on what the
program ran it on, and the host program by what it runs the kernels on (capture.py). What a pass did not change is not run.
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
from dlc.instrument import evidence
from dlc.instrument.capture import Evaluator, KernelRun, Trace, Value, WrongOperand, replay, rounding, run_kernel
from dlc.instrument.compare import deviation, tolerance_of, worst
from dlc.instrument.culprit import culprit
from dlc.instrument.evidence import Evidence
from dlc.ir import ModuleOp, ModulePass, Operation
from dlc.passes.base import Stage, kernels_of
from dlc.weights import WeightStore

T = TypeVar("T")

WEIGHT_EXPRESSIONS = "evaluate-weight-expressions"


@dataclass(frozen=True)
class Step:
    """What is checked: a pass, or another step of the compiler; `remaining` are the passes from it on."""

    stage: str
    name: str
    remaining: str = ""


@dataclass(frozen=True)
class Check:
    """A step that passed: `checked` is what was compared, `deviation` the largest that was met."""

    step: Step
    checked: str
    deviation: float
    seconds: float


@dataclass(frozen=True)
class Fault:
    """The step that computes something else than it should, where it does, and from which origins that comes.

    `kernel`: the one at fault, if it is one kernel's code.
    """

    step: Step
    place: str
    origins: tuple[str, ...]
    what: str
    evidence: Evidence
    kernel: str | None = None

    def __str__(self) -> str:
        came = f"\n  from {', '.join(self.origins)}" if self.origins else ""
        return f"{self.step.name} (stage {self.step.stage}) makes {self.place} wrong: {self.what}{came}\n{self.evidence}"


class WrongNumbers(CompileError):
    """A step of the compiler changes what a program computes."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class Checker:
    """Watches one program on its way down, on given inputs.

    `tolerance` is of the largest magnitude; None takes that of the dtypes. Evidence goes to `folder`, a new one if None.
    """

    def __init__(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[str],
        *,
        tolerance: float | None = None,
        folder: Path | None = None,
        checks: list[Check] | None = None,
    ) -> None:
        self.checks = checks if checks is not None else []
        self.trace = Trace()
        # The module and the weights before the step that is checked next.
        self.before = ModuleOp([])
        self.weights = WeightStore()
        self._from_before = ""
        self._evaluator = Evaluator(inputs)
        self._outputs = tuple(outputs)
        self._tolerance = tolerance
        self._folder = folder

    def start(self, module: ModuleOp, weights: WeightStore) -> None:
        """Evaluates the program that everything is compared with."""
        began = perf_counter()
        self.trace = self._evaluator.trace(module, weights)
        self.before, self.weights = module.clone(), weights
        self.checks.append(Check(Step("", "the program"), "evaluated", 0.0, perf_counter() - began))

    def expect(self, module: ModuleOp, results: Sequence[Array]) -> None:
        """Takes what the program gives as it is known."""
        self.trace = Trace(outputs=tuple(Value(k, array) for k, array in enumerate(results)))
        self.before = module.clone()

    def go_back(self, module: ModuleOp, weights: WeightStore | None = None) -> None:
        """Takes a module from before as the one that is changed next: the program, or a part with the kernels that it runs."""
        self.before, self._from_before = module.clone(), ""
        self.weights = weights if weights is not None else self.weights

    def after_pass(self, stage: Stage, current: ModulePass, remaining: Sequence[ModulePass], module: ModuleOp) -> None:
        """Raises WrongNumbers if the pass changed what the program computes."""
        self._check(Step(stage.name, str(current), ",".join(map(str, remaining))), module, self.weights)

    def after_weights(self, stage: Stage, module: ModuleOp, weights: WeightStore) -> None:
        """The same for the step before the host's stage that evaluates weight expressions."""
        self._check(Step(stage.name, WEIGHT_EXPRESSIONS, ",".join(map(str, stage.passes))), module, weights)

    def is_right(self, run: KernelRun, got: Sequence[Array]) -> bool:
        """Whether a kernel's results are the captured ones."""
        return worst(got, run.outputs)[1] <= self._allowed(run.tolerance)

    def require(self, step: Step, run: KernelRun, got: Sequence[Array], after: ModuleOp | None = None) -> float:
        """The deviation of a kernel's results from the captured ones; raises WrongNumbers if it is past the tolerance."""
        place, off = worst(got, run.outputs)
        allowed = self._allowed(run.tolerance)
        if off > allowed:
            self._fail_kernel(step, run, f"its result {place} {_off(off, allowed)}", after)
        return off

    def require_outputs(self, step: Step, got: Sequence[Array]) -> float:
        """The deviation of a program's outputs from what its ops compute; raises WrongNumbers if it is past the tolerance."""
        place, off = worst(got, self.trace.results)
        allowed = self._allowed(tolerance_of([*self.trace.arrays, *got]))
        if off > allowed and off > self._rounding():
            self._fail(step, f"output {self._outputs[place]}", (), f"it {_off(off, allowed)}", self.before)
        return off

    def _check(self, step: Step, module: ModuleOp, weights: WeightStore) -> None:
        began = perf_counter()
        step = replace(step, remaining=self._from_before or step.remaining)
        main, kernels = entry_of(module), {k.sym_name.data: k for k in kernels_of(module)}
        checked, off = "", 0.0
        if outputs_of(main) or (kernels and not _same(main, entry_of(self.before))):
            checked = "inputs of kernels"
            self._check_host(step, module, weights)
        if not kernels and not outputs_of(main):
            if not _same(module, self.before):
                checked, off = "outputs", self._check_ops(step, module, weights)
        else:
            changed = [name for name, kernel in kernels.items() if not _same(kernel, kernel_of(self.before, name))]
            if changed:
                checked = kernels_text(len(changed))
                off = max(self._check_kernel(step, module, name) for name in changed)
        if checked:
            self.checks.append(Check(step, checked, off, perf_counter() - began))
        if outputs_of(main):
            # On buffers a program cannot be captured: what follows is shown from the last module on tensors.
            self._from_before = step.remaining
        else:
            self.before, self.weights = module.clone(), weights

    def _check_ops(self, step: Step, module: ModuleOp, weights: WeightStore) -> float:
        """Compares the outputs with those of the program before the step."""
        before = self.trace
        after = self._evaluated(step, module, lambda: self._evaluator.trace(module, weights))
        deviations = [deviation(a, b) for a, b in zip(after.results, before.results, strict=True)]
        allowed = self._allowed(tolerance_of(after.arrays))
        wrong = [k for k, off in enumerate(deviations) if off > allowed]
        if wrong and max(deviations) > self._rounding():
            k = max(wrong, key=lambda k: deviations[k])
            found = culprit(before, after, wrong)
            place, origins = f"output {self._outputs[k]}", tuple[str, ...]()
            if found is not None:
                place, origins = found.op.name, found.origins
                place += f" in kernel @{found.kernel}" if found.kernel is not None else ""
            self._fail(step, place, origins, f"output {self._outputs[k]} {_off(deviations[k], allowed)}", module)
        self.trace = after
        return max(deviations, default=0.0)

    def _rounding(self) -> float:
        return rounding(self.before, self.weights, self._evaluator.inputs, self.trace.results)

    def _check_host(self, step: Step, module: ModuleOp, weights: Mapping[str, Array]) -> None:
        """Runs the program between the kernels: each must get what it was captured with, each output what was computed."""
        inputs, runs = self._evaluator.inputs, self.trace.runs
        try:
            results = self._evaluated(step, module, lambda: replay(module, weights, inputs, runs))
        except WrongOperand as error:
            what = f"{error.what} {_off(error.deviation, error.tolerance)}" if error.tolerance is not None else error.what
            self._fail(step, f"the run of kernel @{error.run.kernel}", error.run.origins, what, module)
        for name, got, expected in zip(self._outputs, results, self.trace.results, strict=True):
            off, allowed = deviation(got, expected), self._allowed(tolerance_of([expected]))
            if off > allowed:
                self._fail(step, f"output {name}", (), f"it {_off(off, allowed)}", module)

    def _check_kernel(self, step: Step, module: ModuleOp, name: str) -> float:
        run = self.trace.run_of(name)
        if run is None:
            return 0.0
        try:
            got = run_kernel(module, run)
        except UnsupportedError:
            raise
        except Exception as error:
            self._fail_kernel(step, run, f"it cannot be evaluated: {_first_line(error)}", module)
        return self.require(step, run, got, module)

    def _evaluated(self, step: Step, module: ModuleOp, evaluate: Callable[[], T]) -> T:
        """What `evaluate` gives; IR that cannot be evaluated is the step's fault."""
        try:
            return evaluate()
        except (UnsupportedError, WrongOperand):
            raise
        except Exception as error:
            self._fail(step, "the program", (), f"it cannot be evaluated: {_first_line(error)}", module)

    def _allowed(self, tolerance: float) -> float:
        return self._tolerance if self._tolerance is not None else tolerance

    def _fail(self, step: Step, place: str, origins: tuple[str, ...], what: str, after: ModuleOp) -> NoReturn:
        shown = evidence.save(self._folder, self.before, after, self._evaluator.inputs, self.weights, step.remaining)
        raise WrongNumbers(Fault(step, place, origins, what, shown))

    def _fail_kernel(self, step: Step, run: KernelRun, what: str, after: ModuleOp | None) -> NoReturn:
        before, changed = kernel_of(self.before, run.kernel), kernel_of(after, run.kernel) if after is not None else None
        assert before is not None
        after = evidence.alone([(changed, run)]) if changed is not None else None
        shown = evidence.save(self._folder, evidence.alone([(before, run)]), after, run.inputs, WeightStore(), step.remaining)
        raise WrongNumbers(Fault(step, f"kernel @{run.kernel}", run.origins, what, shown, run.kernel))


def kernel_of(module: ModuleOp, name: str) -> Operation | None:
    """A kernel by its name, at whatever stage it is."""
    functions = (k for k in kernels_of(module) if k.sym_name.data == name)
    return next(functions, next((k for k in module.ops if isinstance(k, KernelOp) and k.symbol == name), None))


def kernels_text(count: int) -> str:
    """How many kernels, in words."""
    return f"{count} kernel{'s' * (count != 1)}"


def _same(a: Operation, b: Operation | None) -> bool:
    if b is None:
        return False
    # Ops in two modules are compared as if these were one.
    return a.is_structurally_equivalent(b, {a.parent: b.parent} if a.parent is not None and b.parent is not None else {})


def _off(off: float, allowed: float) -> str:
    """A deviation in words."""
    if off == np.inf:
        return "differs in shape, NaN or infinities"
    return f"is off by {off:.1e} of its largest magnitude, where {allowed:.0e} is allowed"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]

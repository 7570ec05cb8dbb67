"""The first pass that changes what a program computes, found by evaluating the module after each one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.compiler.lowering import Lowering
from dlc.instrument.manager import Progress
from dlc.instrument.report import Report
from dlc.ir import ModuleOp, ModulePass, print_module
from dlc.options import Options
from dlc.passes.base import Stage
from dlc.pipelines import HOST
from dlc.target import resolve


@dataclass(frozen=True)
class Step:
    """What a pass (or the native code) made of the results: the largest difference from those of the imported program, as a
    fraction of the largest magnitude of the output where it is."""

    stage: str
    spec: str
    output: str
    deviation: float


class _Found(Exception):
    """A pass past the tolerance ends the search."""


def bisect(
    program: Program,
    arrays: Sequence[NDArray[Any]],
    target: str = "cpu",
    *,
    tolerance: float = 1e-4,
    options: Options | None = None,
    progress: Progress | None = None,
) -> list[Step]:
    """A step per pass that changed the module, up to the first one whose deviation exceeds `tolerance`; last the native code.

    Raises what compiling raises.
    """
    names = [info.name for info in program.outputs]
    expected = evaluate(program.module, arrays, program.weights)
    steps: list[Step] = []
    before = print_module(program.module)

    def compare(stage: str, spec: str, results: Sequence[NDArray[Any]]) -> None:
        deviations = [deviation(got, want) for got, want in zip(results, expected, strict=True)]
        worst = int(np.argmax(deviations)) if deviations else 0
        steps.append(Step(stage, spec, names[worst], deviations[worst]))
        if deviations[worst] > tolerance:
            raise _Found

    def observe(stage: Stage, current: ModulePass, module: ModuleOp) -> None:
        nonlocal before
        text = print_module(module)
        if text != before:
            compare(stage.name, str(current), evaluate(module, arrays, lowering.weights))
        before = text

    options = options or Options()
    lowering = Lowering(program, resolve(target), options, Report(), progress, observe)
    try:
        lowering.run(tuple(s for s in lowering.plan if s.name != HOST.name))
        lowering.host()
        native = compile(program, target, options)
        compare("native", target, list(native(*arrays).values()))
    except _Found:
        pass
    return steps


def deviation(got: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference as a fraction of the largest finite magnitude; infinite where NaN or infinities differ."""
    if got.shape != expected.shape:
        return float("inf")
    a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.where(finite, 0, a), np.where(finite, 0, b), equal_nan=True) or not np.isfinite(a[finite]).all():
        return float("inf")
    difference = float(np.abs(a[finite] - b[finite]).max(initial=0))
    largest = float(np.abs(b[finite]).max(initial=0))
    return difference / largest if largest else difference

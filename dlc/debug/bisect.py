"""Find the cause of wrong results: the import, a pass, the native code of a kernel, or the host program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlc.backends.base import Backend
from dlc.backends.registry import backend_of
from dlc.compiler import Program, check, compile
from dlc.compiler.compilation import Compilation
from dlc.debug.tile_plans import describe_plans
from dlc.dialects.dl.base import Array
from dlc.errors import ModelError
from dlc.instrument.capture import Evaluator, rounding_tolerance
from dlc.instrument.check import Check, Fault, WrongResultsError
from dlc.instrument.compare import deviation, tolerance_of
from dlc.instrument.report import Progress
from dlc.options import Options


@dataclass(frozen=True)
class Verdict:
    """The result of a bisection.

    Attributes:
        checks: The steps that were checked, in order.
        fault: The first step that changes the results, or None.
        advice: A text that says where to look for the cause of the fault.
    """

    checks: list[Check]
    fault: Fault | None = None
    advice: str = ""


def bisect(
    program: Program,
    arrays: Sequence[Array],
    target: str | Backend = "cpu",
    *,
    tolerance: float | None = None,
    options: Options | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Find the first step between `program` and its execution on `target` that changes the results for these inputs.

    `tolerance` is relative to the largest magnitude; None chooses it by dtype. A reproducer of the fault is written to
    `folder`. Raises UnsupportedError for a program with symbolic sizes, and the errors of compilation.
    """
    checks: list[Check] = []
    options = options or Options()
    backend = backend_of(target, options.device).for_local_device()
    compilation = Compilation(program, backend, options, progress=progress)
    try:
        check(
            compilation,
            arrays,
            lambda segment: compile(segment.program, backend, segment.options).run_unchecked,
            every_kernel_pass=False,
            tolerance=tolerance,
            folder=folder,
            checks=checks,
            target=target if isinstance(target, str) else None,
        )
    except WrongResultsError as error:
        return Verdict(checks, error.fault, describe_plans(error.fault, backend.target))
    return Verdict(checks)


@dataclass(frozen=True)
class RecordedOutput:
    """The deviation of one output of the imported program from its recording."""

    name: str
    deviation: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.deviation <= self.tolerance


def compare_recorded(
    program: Program, arrays: Sequence[Array], recorded: Mapping[str, Array], tolerance: float | None = None
) -> list[RecordedOutput]:
    """Compare the outputs of the program, evaluated before any pass, with recorded arrays.

    Raises ModelError if no recorded array is an output.
    """
    trace = Evaluator(arrays).trace(program.module, program.weights)
    results = {info.name: array for info, array in zip(program.outputs, trace.results, strict=True)}
    if not results.keys() & recorded.keys():
        raise ModelError(
            f"no recorded array is an output: recorded {', '.join(recorded) or 'nothing'}; outputs {', '.join(results)}"
        )
    max_deviation = tolerance if tolerance is not None else tolerance_of(trace.arrays)
    if any(deviation(array, recorded[name]) > max_deviation for name, array in results.items() if name in recorded):
        max_deviation = max(max_deviation, rounding_tolerance(program.module, program.weights, arrays, trace.results))
    return [
        RecordedOutput(name, deviation(array, recorded[name]), max_deviation)
        for name, array in results.items()
        if name in recorded
    ]

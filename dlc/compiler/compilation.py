"""A compilation as a value: the inputs of all compilation steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dlc.backends.base import Backend
from dlc.compiler.program import Program
from dlc.instrument.compilation_record import CompilationRecorder
from dlc.instrument.report import Progress, ProgressEvent, Report
from dlc.options import Options
from dlc.weights import WeightStore


@dataclass(frozen=True)
class Compilation:
    """A program with the backend and options to compile it for.

    Attributes:
        report: Collects statistics.
        progress: Called before each step.
        recorder: Stores the module after each pass.
        shared_weights: The packed weights of all specializations of a function or model; equal ones are in memory once.
    """

    program: Program
    backend: Backend
    options: Options = field(default_factory=Options)
    report: Report = field(default_factory=Report)
    progress: Progress | None = None
    recorder: CompilationRecorder | None = None
    shared_weights: WeightStore = field(default_factory=WeightStore)

    def for_program(self, program: Program, options: Options) -> Compilation:
        """Return the compilation of another program, without progress and recording."""
        return replace(self, program=program, options=options, progress=None, recorder=None)

    def for_segment(self, program: Program, options: Options) -> Compilation:
        """Return the compilation of the next segment of this program; the recorder stores it as a segment."""
        recorder = self.recorder.segment_recorder() if self.recorder is not None else None
        return replace(self, program=program, options=options, recorder=recorder)

    def for_backend(self, backend: Backend) -> Compilation:
        """Return the compilation for another backend."""
        return replace(self, backend=backend)

    def report_progress(self, phase: str, item: str = "", done: int = 0, total: int = 0) -> None:
        """Report to `progress` that a step begins."""
        if self.progress is not None:
            self.progress(ProgressEvent(phase, item, done, total))

"""One compilation as a value: what every step of it is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dlc.backends.base import Backend
from dlc.compiler.program import Program
from dlc.instrument.recording import Recorder
from dlc.instrument.report import Doing, Progress, Report
from dlc.options import Options


@dataclass(frozen=True)
class Compilation:
    """A program on its way to a backend; `report` takes notes, and `progress` is told what is being done.

    A `recorder` keeps what each pass makes of it.
    """

    program: Program
    backend: Backend
    options: Options = field(default_factory=Options)
    report: Report = field(default_factory=Report)
    progress: Progress | None = None
    recorder: Recorder | None = None

    def of(self, program: Program, options: Options) -> Compilation:
        """That of another program, which shows no progress and is not recorded."""
        return replace(self, program=program, options=options, progress=None, recorder=None)

    def of_part(self, program: Program, options: Options) -> Compilation:
        """That of the next part of this program, which is recorded as such."""
        recorder = self.recorder.of_part() if self.recorder is not None else None
        return replace(self, program=program, options=options, recorder=recorder)

    def on(self, backend: Backend) -> Compilation:
        """That for another backend."""
        return replace(self, backend=backend)

    def tell(self, phase: str, what: str = "", done: int = 0, total: int = 0) -> None:
        """Says what is about to be done (`report.Doing`)."""
        if self.progress is not None:
            self.progress(Doing(phase, what, done, total))

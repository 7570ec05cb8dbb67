"""Record a compilation as text: each module and kernel after each pass, with the origins of its lines.

    recorder = CompilationRecorder()
    compile_recorded(Compilation(program, backend, options, recorder=recorder))
    recorder.program.snapshots              the module after each pass that changed it; in the host stage, only its entry
    recorder.segments[0].program            the same for a segment, if the program is split at a data-dependent size
    recorder.kernels["conv"].snapshots      a kernel after each of its passes, then its code

Texts contain no locations; each line has its origins. Those in a kernel are indices `#0`, `#1`, … into the list of origins of
its launches, as in a dump.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from dlc.dialects.entry import entry_of
from dlc.instrument.manager import Observer, PassManager
from dlc.instrument.printing import PrintedModules, SharedTexts
from dlc.instrument.report import PassRecord
from dlc.ir import ModuleOp, ModulePass, Operation
from dlc.passes.base import Stage, kernels_of


@dataclass(frozen=True)
class Listing:
    """A text with the origins of its lines.

    Attributes:
        origins: The names of the origins of each line.
        lines: For generated code, the line of the `loops` module from which each line was generated (-1: unknown).
    """

    text: str
    origins: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """A listing with the pass or code generator that produced it; `pass_number` counts passes from 1."""

    stage: str
    producer: str
    pass_number: int
    listing: Listing


@dataclass
class PassHistory:
    """The snapshots of a program or kernel, and the passes that ran on it; `notes` are remarks about a kernel."""

    snapshots: list[Snapshot] = field(default_factory=list[Snapshot])
    passes: Sequence[PassRecord] = ()
    notes: list[str] = field(default_factory=list[str])


# (next pass, module of a kernel) → remarks to record.
Note = Callable[[ModulePass, ModuleOp], Sequence[str]]


@dataclass
class CompilationRecorder:
    """Record one compilation.

    Attributes:
        keep: The stages after which the program's module is copied to `modules`.
        reports: The reports of passes, by name.
        result: The compiled program: an artifact or an executable.
    """

    keep: tuple[str, ...] = ()
    note: Note = lambda current, module: ()
    program: PassHistory = field(default_factory=PassHistory)
    segments: list[CompilationRecorder] = field(default_factory=list["CompilationRecorder"])
    kernels: dict[str, PassHistory] = field(default_factory=dict[str, PassHistory])
    modules: dict[str, ModuleOp] = field(default_factory=dict[str, ModuleOp])
    reports: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    result: object = None
    _shared_texts: SharedTexts = field(default_factory=SharedTexts)

    def segment_recorder(self) -> CompilationRecorder:
        """Return the recorder of the next segment of a program."""
        self.segments.append(CompilationRecorder(self.keep, self.note, _shared_texts=self._shared_texts))
        return self.segments[-1]

    def program_observer(self, module: ModuleOp, producer: tuple[str, str], manager: PassManager) -> Observer:
        """Return an observer for the passes that a manager runs on a program.

        `producer` is the stage and the source of the module: the import, or segments that have been linked.
        """
        self.program.passes, self.reports = manager.records, manager.reports
        snapshots = _Snapshots(self.program.snapshots, self._shared_texts)
        snapshots.take(module, *producer)

        def after_pass(stage: Stage, current: ModulePass, remaining: Sequence[ModulePass], module: ModuleOp) -> None:
            # The host stage does not change kernels: record the entry only.
            snapshots.take(entry_of(module) if stage.name == "host" else module, stage.name, str(current))
            if current is stage.passes[-1] and stage.name in self.keep:
                self.modules[stage.name] = module.clone()

        return after_pass

    def kernel_recorder(self, kernel: Operation, stages: Sequence[Stage]) -> KernelRecorder:
        """Return the recorder of a kernel compiled by `stages`."""
        return KernelRecorder(kernel, _next_passes(stages), self.note, self._shared_texts)


class KernelRecorder:
    """Observe the passes of one kernel; `record` is the result."""

    def __init__(self, kernel: Operation, next_passes: Mapping[int, ModulePass], note: Note, shared_texts: SharedTexts) -> None:
        self.record = PassHistory()
        self._snapshots, self._next_passes, self._note = _Snapshots(self.record.snapshots, shared_texts), next_passes, note
        self._snapshots.take(kernel, "fusion", "")

    def after_pass(self, stage: Stage, current: ModulePass, remaining: Sequence[ModulePass], module: ModuleOp) -> None:
        """Record the kernel after a pass."""
        self._snapshots.take(next(kernels_of(module)), stage.name, str(current))
        if (next_pass := self._next_passes.get(id(current))) is not None:
            self.record.notes += self._note(next_pass, module)

    def add_code(
        self, format: str, producer: str, text: str, code_origins: Sequence[tuple[str, ...]], lines: Sequence[int]
    ) -> None:
        """Record the kernel's code: each line has a source line in the loops (-1: unknown), or else `code_origins`."""
        loops = next(s for s in reversed(self.record.snapshots) if not s.listing.lines).listing
        line_origins = tuple(loops.origins[k] if k >= 0 else () for k in lines) or tuple(code_origins)
        listing = Listing(text, line_origins, tuple(lines) or (-1,) * len(line_origins))
        self.record.snapshots.append(Snapshot(format, producer, self._snapshots.passes, listing))

    @property
    def lines(self) -> Mapping[Operation, int]:
        """The line of each op in the last text."""
        return self._snapshots.lines


class _Snapshots:
    """Snapshots of an op that passes change, for those that changed its text."""

    def __init__(self, snapshots: list[Snapshot], shared_texts: SharedTexts) -> None:
        self.snapshots, self.passes = snapshots, -1
        self.lines: Mapping[Operation, int] = {}
        self._texts = PrintedModules(shared_texts)

    def take(self, op: Operation, stage: str, producer: str) -> None:
        self.passes += 1
        if (printed := self._texts.of(op)) is None:
            return
        text, self.lines = printed
        line_origins: list[tuple[str, ...]] = [()] * text.count("\n")
        origins = self._texts.shared_texts.origins
        for inner, line in self.lines.items():
            line_origins[line] = origins(inner.location)
        snapshot = Snapshot(stage, producer, self.passes, Listing(text, tuple(line_origins)))
        if self.snapshots and self.snapshots[-1].listing.text == text:
            # The text is the same, but origins may have changed.
            self.snapshots[-1] = replace(self.snapshots[-1], listing=snapshot.listing)
        else:
            self.snapshots.append(snapshot)


def _next_passes(stages: Sequence[Stage]) -> dict[int, ModulePass]:
    """Return the successor of each pass."""
    passes = [p for stage in stages for p in stage.passes]
    return {id(p): next_pass for p, next_pass in pairwise(passes)}

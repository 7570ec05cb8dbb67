"""What a compilation makes of a program, text by text, for a reader: each with the origins of its lines.

    recorder = Recorder()
    recorded(Compilation(program, backend, options, recorder=recorder))
    recorder.program.shots              the module after each pass that changed it, from the host's stage on its entry
    recorder.parts[0].program           the same of a part, where data decides a size and a program is cut there
    recorder.kernels["conv"].shots      a kernel after each of its passes, then its code

A text has no locations in it: they are beside its lines. Those of a kernel are places in the list of origins of its runs,
`#0`, `#1`, …, as in a dump.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from dlc.dialects.entry import entry_of
from dlc.instrument.manager import Observer, PassManager
from dlc.instrument.printing import Alike, Texts
from dlc.instrument.report import PassRecord
from dlc.ir import ModuleOp, ModulePass, Operation
from dlc.passes.base import Stage, kernels_of


@dataclass(frozen=True)
class Listing:
    """A text, and for each of its lines where it comes from: the names of origins, and a line of the loops (-1: none known).

    Only code has such lines.
    """

    text: str
    origins: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...] = ()


@dataclass(frozen=True)
class Shot:
    """A listing, and what made it: a pass of a stage, or what wrote code; `number` is that of the pass, from 1."""

    stage: str
    made_by: str
    number: int
    listing: Listing


@dataclass
class Record:
    """A program or a kernel on its way, by the passes that it went through; `notes` is what was to be noted of a kernel."""

    shots: list[Shot] = field(default_factory=list[Shot])
    passes: Sequence[PassRecord] = ()
    notes: list[str] = field(default_factory=list[str])


# Told the pass that is about to run on a kernel's module: what is to be noted.
Note = Callable[[ModulePass, ModuleOp], Sequence[str]]


@dataclass
class Recorder:
    """Takes notes of one compilation.

    `keep` names stages after which the program's module is copied to `modules`; `told` is what passes said that they decided,
    by their names. `made` is what came of it: an artifact, or what runs on its device.
    """

    keep: tuple[str, ...] = ()
    note: Note = lambda current, module: ()
    program: Record = field(default_factory=Record)
    parts: list[Recorder] = field(default_factory=list["Recorder"])
    kernels: dict[str, Record] = field(default_factory=dict[str, Record])
    modules: dict[str, ModuleOp] = field(default_factory=dict[str, ModuleOp])
    told: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    made: object = None
    _alike: Alike = field(default_factory=Alike)

    def of_part(self) -> Recorder:
        """What takes notes of the next part of a program that is cut."""
        self.parts.append(Recorder(self.keep, self.note, _alike=self._alike))
        return self.parts[-1]

    def of_program(self, module: ModuleOp, made_by: tuple[str, str], manager: PassManager) -> Observer:
        """What is told of the passes that a manager runs on a program.

        `made_by` is what the module comes from, and of which stage that is: the import, or parts that are put together again.
        """
        self.program.passes, self.told = manager.records, manager.told
        shots = _Shots(self.program.shots, self._alike)
        shots.take(module, *made_by)

        def after_pass(stage: Stage, current: ModulePass, remaining: Sequence[ModulePass], module: ModuleOp) -> None:
            # Kernels are no part of the host program, and change no more with it.
            shots.take(entry_of(module) if stage.name == "host" else module, stage.name, str(current))
            if current is stage.passes[-1] and stage.name in self.keep:
                self.modules[stage.name] = module.clone()

        return after_pass

    def of_kernel(self, kernel: Operation, stages: Sequence[Stage]) -> KernelWatch:
        """What watches a kernel that goes through `stages`."""
        return KernelWatch(kernel, _coming(stages), self.note, self._alike)


class KernelWatch:
    """Is told of the passes of one kernel; `record` is what it has seen."""

    def __init__(self, kernel: Operation, coming: Mapping[int, ModulePass], note: Note, alike: Alike) -> None:
        self.record = Record()
        self._shots, self._coming, self._note = _Shots(self.record.shots, alike), coming, note
        self._shots.take(kernel, "fusion", "")

    def after_pass(self, stage: Stage, current: ModulePass, remaining: Sequence[ModulePass], module: ModuleOp) -> None:
        """Takes the kernel as a pass has left it."""
        self._shots.take(next(kernels_of(module)), stage.name, str(current))
        if (following := self._coming.get(id(current))) is not None:
            self.record.notes += self._note(following, module)

    def add_code(self, form: str, made_by: str, text: str, places: Sequence[tuple[str, ...]], lines: Sequence[int]) -> None:
        """Takes the kernel's code: each line comes from a line of the loops (-1: none that is known), or else from places."""
        loops = next(s for s in reversed(self.record.shots) if not s.listing.lines).listing
        found = tuple(loops.origins[k] if k >= 0 else () for k in lines) or tuple(places)
        listing = Listing(text, found, tuple(lines) or (-1,) * len(found))
        self.record.shots.append(Shot(form, made_by, self._shots.passes, listing))

    @property
    def lines(self) -> Mapping[Operation, int]:
        """The line, in the last text, on which each op begins."""
        return self._shots.lines


class _Shots:
    """Listings of what passes change, of those that changed its text."""

    def __init__(self, shots: list[Shot], alike: Alike) -> None:
        self.shots, self.passes = shots, -1
        self.lines: Mapping[Operation, int] = {}
        self._texts = Texts(alike)

    def take(self, op: Operation, stage: str, made_by: str) -> None:
        self.passes += 1
        if (printed := self._texts.of(op)) is None:
            return
        text, self.lines = printed
        found: list[tuple[str, ...]] = [()] * text.count("\n")
        origins = self._texts.alike.origins
        for inner, line in self.lines.items():
            found[line] = origins(inner.location)
        shot = Shot(stage, made_by, self.passes, Listing(text, tuple(found)))
        if self.shots and self.shots[-1].listing.text == text:
            # Origins may be other ones than before.
            self.shots[-1] = replace(self.shots[-1], listing=shot.listing)
        else:
            self.shots.append(shot)


def _coming(stages: Sequence[Stage]) -> dict[int, ModulePass]:
    """The pass that comes after each one."""
    passes = [p for stage in stages for p in stage.passes]
    return {id(p): following for p, following in pairwise(passes)}

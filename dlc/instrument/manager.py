"""Runs passes: in order, timed, verified and dumped where asked; and keeps the evidence when one fails."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from time import perf_counter
from typing import Any

from dlc.errors import CompileError, DlcError
from dlc.instrument.dump import DumpFolder
from dlc.instrument.report import Doing, PassRecord, Progress
from dlc.instrument.verify import Verifier, verify_legal
from dlc.ir import Context, ModuleOp, ModulePass, VerifyException, op_count, print_module
from dlc.passes.base import Stage, TellingPass

# Told the stage and the pass that has run, the passes of the plan from it on, and the module that it left.
Observer = Callable[[Stage, ModulePass, Sequence[ModulePass], ModuleOp], None]


class PassManager:
    """Runs stages over modules; `records` lists every pass that ran, `told` what some of them, by their names, said.

    `plan` is everything that a program goes through, so that a dumped module can say what is still to come. Ops are `counted`
    before and after each pass where somebody looks at that.
    """

    def __init__(
        self,
        context: Context,
        plan: Sequence[Stage] = (),
        *,
        check: bool = False,
        counted: bool = True,
        dump: DumpFolder | None = None,
        progress: Progress | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.context = context
        self.plan = plan
        self.verifier = Verifier() if check else None
        self.counted = counted
        self.dump = dump
        self.progress = progress
        self.observer = observer
        self.records: list[PassRecord] = []
        self.told: dict[str, Sequence[Any]] = {}

    def run(self, module: ModuleOp, stages: Sequence[Stage], start: Callable[[], ModuleOp] | None = None) -> None:
        """Rewrites `module` in place; `start` makes it again as it is now, if somebody keeps what it is a copy of.

        Raises the DlcError that a pass raises about the program; anything else that a pass raises, and a module that does
        not verify, becomes a CompileError that names the pass, the module before it and the line that reproduces it.
        """
        # Passes work in place: the module before a failing one is made again from the start.
        start = start or _keep(module)
        done: list[ModulePass] = []
        ops = self._count(module)
        first = next(((stage, p) for stage in stages for p in stage.passes), None)
        if self.dump is not None and not self.dump.started and first is not None:
            self.dump.start(module, _spec(_passes_from(self.plan, *first)))
        total = sum(len(stage.passes) for stage in stages)
        for stage in stages:
            for current in stage.passes:
                if self.progress is not None:
                    self.progress(Doing(stage.name, current.name, len(done), total))
                try:
                    ops = self._run_pass(module, stage, current, ops)
                except DlcError as error:
                    if not isinstance(error, CompileError):
                        raise
                    raise self._failure(start(), done, stage, current, error) from error
                except Exception as error:
                    raise self._failure(start(), done, stage, current, error) from error
                done.append(current)
                if self.observer is not None:
                    self.observer(stage, current, _passes_from(self.plan, stage, current), module)

    def _run_pass(self, module: ModuleOp, stage: Stage, current: ModulePass, before: int) -> int:
        """Runs one pass on a module of so many ops: how many it has then."""
        began = perf_counter()
        if isinstance(current, TellingPass):
            self.told[current.name] = current.tell(self.context, module)
        else:
            current.apply(self.context, module)
        seconds = perf_counter() - began
        change, file = "", ""
        if self.dump is not None:
            remaining = _spec(_passes_from(self.plan, stage, current)[1:])
            change, file = self.dump.after_pass(module, current.name, remaining)
        after = self._count(module)
        record = PassRecord(stage.name, _text_of(current), seconds, before, after, change, file)
        self.records.append(record)
        if self.dump is not None:
            self.dump.record(record)
        if self.verifier is not None:
            self.verifier.verify(module)
        if current is stage.passes[-1]:
            verify_legal(module, stage)
            if self.dump is not None:
                self.dump.after_stage(module, stage)
        return after

    def _count(self, module: ModuleOp) -> int:
        return op_count(module) if self.counted else 0

    def _failure(
        self, start: ModuleOp, done: Sequence[ModulePass], stage: Stage, current: ModulePass, error: Exception
    ) -> CompileError:
        for earlier in done:
            earlier.apply(self.context, start)
        folder = self.dump.folder / "crash" if self.dump is not None else Path(tempfile.mkdtemp(prefix="dlc-crash-"))
        folder.mkdir(exist_ok=True)
        file = folder / "before.mlir"
        file.write_text(print_module(start), "utf-8")
        line = f"dlc opt {quote(str(file))} -p '{current}'"
        (folder / "error.txt").write_text(f"{line}\n\n{''.join(traceback.format_exception(error))}", "utf-8")
        kind = "left a module that does not verify" if isinstance(error, VerifyException) else "failed"
        first = str(error).strip().partition("\n")[0]
        return CompileError(
            f"pass {current.name} (stage {stage.name}) {kind}: {type(error).__name__}: {first}\n"
            f"This is a bug of dlc; to reproduce it: {line}"
        )


# The texts of passes, which stay while they are here: each kernel goes through the same ones.
_texts: dict[int, tuple[ModulePass, str]] = {}
_MOST_TEXTS = 256


def _text_of(current: ModulePass) -> str:
    known = _texts.get(id(current))
    if known is None:
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()
        known = _texts[id(current)] = current, str(current)
    return known[1]


def _keep(module: ModuleOp) -> Callable[[], ModuleOp]:
    copy = module.clone()
    return lambda: copy


def _passes_from(plan: Sequence[Stage], stage: Stage, current: ModulePass) -> list[ModulePass]:
    """The passes of a plan from `current` of `stage` on."""
    later: list[ModulePass] = []
    for s in plan:
        if s is stage:
            later = list(s.passes[[p is current for p in s.passes].index(True) :])
        else:
            later += s.passes
    return later


def _spec(passes: Sequence[ModulePass]) -> str:
    return ",".join(str(p) for p in passes)

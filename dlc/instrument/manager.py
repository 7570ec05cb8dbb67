"""The pass manager: runs passes in order, with optional timing, verification and dumps; writes a reproducer when one fails."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from dlc.errors import CompileError, DlcError
from dlc.instrument.dump import DumpFolder
from dlc.instrument.report import PassRecord, Progress, ProgressEvent
from dlc.instrument.reproducer import shell_command
from dlc.instrument.verify import Verifier, verify_legal
from dlc.ir import Context, ModuleOp, ModulePass, VerifyException, op_count, print_module
from dlc.passes.base import ReportingPass, Stage

# Called after a pass with its stage, the pass, the passes of the plan from it on, and the resulting module.
Observer = Callable[[Stage, ModulePass, Sequence[ModulePass], ModuleOp], None]


class PassManager:
    """Run stages over modules.

    Attributes:
        plan: The complete pipeline of a program, so that a dumped module can list the remaining passes.
        count_ops: Whether to count the ops before and after each pass.
        records: The passes that ran.
        reports: The reports of passes, by name.
    """

    def __init__(
        self,
        context: Context,
        plan: Sequence[Stage] = (),
        *,
        check: bool = False,
        count_ops: bool = True,
        dump: DumpFolder | None = None,
        progress: Progress | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.context = context
        self.plan = plan
        self.verifier = Verifier() if check else None
        self.count_ops = count_ops
        self.dump = dump
        self.progress = progress
        self.observer = observer
        self.records: list[PassRecord] = []
        self.reports: dict[str, Sequence[Any]] = {}

    def run(self, module: ModuleOp, stages: Sequence[Stage], start: Callable[[], ModuleOp] | None = None) -> None:
        """Rewrite `module` in place; `start` recreates its current state, if the caller can.

        A DlcError that a pass raises about the program is passed on. Any other exception, and a module that does not verify,
        becomes a CompileError that names the pass, the module before it and the command line that reproduces it.
        """
        # Passes rewrite the module in place: the module before a failing pass is recomputed from the start.
        start = start or _snapshot(module)
        finished_passes: list[ModulePass] = []
        ops = self._count(module)
        first = next(((stage, p) for stage in stages for p in stage.passes), None)
        if self.dump is not None and not self.dump.started and first is not None:
            self.dump.start(module, _spec(_passes_from(self.plan, *first)))
        total = sum(len(stage.passes) for stage in stages)
        for stage in stages:
            for current in stage.passes:
                if self.progress is not None:
                    self.progress(ProgressEvent(stage.name, current.name, len(finished_passes), total))
                try:
                    ops = self._run_pass(module, stage, current, ops)
                except DlcError as error:
                    if not isinstance(error, CompileError):
                        raise
                    raise self._failure(start(), finished_passes, stage, current, error) from error
                except Exception as error:
                    raise self._failure(start(), finished_passes, stage, current, error) from error
                finished_passes.append(current)
                if self.observer is not None:
                    self.observer(stage, current, _passes_from(self.plan, stage, current), module)

    def _run_pass(self, module: ModuleOp, stage: Stage, current: ModulePass, before: int) -> int:
        """Run one pass on a module with `before` ops; return the number of ops afterwards."""
        start = perf_counter()
        if isinstance(current, ReportingPass):
            self.reports[current.name] = current.report(self.context, module)
        else:
            current.apply(self.context, module)
        seconds = perf_counter() - start
        change, file = "", ""
        if self.dump is not None:
            remaining = _spec(_passes_from(self.plan, stage, current)[1:])
            change, file = self.dump.after_pass(module, current.name, remaining)
        num_ops = self._count(module)
        record = PassRecord(stage.name, _print_pass(current), seconds, before, num_ops, change, file)
        self.records.append(record)
        if self.dump is not None:
            self.dump.record(record)
        if self.verifier is not None:
            self.verifier.verify(module)
        if current is stage.passes[-1]:
            verify_legal(module, stage)
            if self.dump is not None:
                self.dump.after_stage(module, stage)
        return num_ops

    def _count(self, module: ModuleOp) -> int:
        return op_count(module) if self.count_ops else 0

    def _failure(
        self, start: ModuleOp, finished_passes: Sequence[ModulePass], stage: Stage, current: ModulePass, error: Exception
    ) -> CompileError:
        for earlier in finished_passes:
            earlier.apply(self.context, start)
        folder = self.dump.folder / "crash" if self.dump is not None else Path(tempfile.mkdtemp(prefix="dlc-crash-"))
        folder.mkdir(exist_ok=True)
        file = folder / "before.mlir"
        file.write_text(print_module(start), "utf-8")
        line = shell_command("opt", str(file), "-p", str(current))
        (folder / "error.txt").write_text(f"{line}\n\n{''.join(traceback.format_exception(error))}", "utf-8")
        failure = "left a module that does not verify" if isinstance(error, VerifyException) else "failed"
        first_line = str(error).strip().partition("\n")[0]
        return CompileError(
            f"pass {current.name} (stage {stage.name}) {failure}: {type(error).__name__}: {first_line}\n"
            f"This is a bug of dlc; to reproduce it: {line}"
        )


# Cached texts of passes by identity, which the cache keeps alive: all kernels run through the same passes.
_texts: dict[int, tuple[ModulePass, str]] = {}
_MAX_CACHED_TEXTS = 256


def _print_pass(current: ModulePass) -> str:
    entry = _texts.get(id(current))
    if entry is None:
        if len(_texts) >= _MAX_CACHED_TEXTS:
            _texts.clear()
        entry = _texts[id(current)] = current, str(current)
    return entry[1]


def _snapshot(module: ModuleOp) -> Callable[[], ModuleOp]:
    copy = module.clone()
    return lambda: copy


def _passes_from(plan: Sequence[Stage], stage: Stage, current: ModulePass) -> list[ModulePass]:
    """Return the passes of a plan from `current` of `stage` on."""
    later: list[ModulePass] = []
    for s in plan:
        if s is stage:
            later = list(s.passes[[p is current for p in s.passes].index(True) :])
        else:
            later += s.passes
    return later


def _spec(passes: Sequence[ModulePass]) -> str:
    return ",".join(str(p) for p in passes)

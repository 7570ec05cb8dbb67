"""Random programs, compiled in batches and compared with the reference."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dlc.backends.reference import evaluate
from dlc.compiler import compile
from dlc.dialects.dl.base import DlOp
from dlc.options import Options
from dlc.target import host_supports, resolve
from tests.fuzz.drawing import random_program, rounded_program
from tests.fuzz.expected import expected_of
from tests.fuzz.random_program import Batch
from tests.fuzz.supervise import supervised
from tests.fuzz.tracked import difference

OPTIONS = Options(num_threads=1, workers=1, cache=False)
# The best level of this machine mostly, the others often enough.
TARGETS = [t for t in (*["cpu"] * 6, "cpu:avx2", "cpu:generic") if host_supports(resolve(t))]
BATCH = 25
# For one batch; compiled code takes as much as the compiler gives it, so that this is generous.
SECONDS = 120


@dataclass(frozen=True)
class Trial:
    """Programs that are compiled together, and for what."""

    seeds: tuple[int, ...]
    target: str
    precision: str = "f32"


@dataclass(frozen=True)
class Failure:
    """A program that went wrong, or several that only do so together."""

    trial: Trial
    what: str

    def __str__(self) -> str:
        seeds, precision = self.trial.seeds, self.trial.precision
        together = f" --batch {len(seeds)}" if len(seeds) > 1 else ""
        rounded = f" --precision {precision}" if precision != "f32" else ""
        command = f"programs --seed {seeds[0]} --count {len(seeds)}{together} --target {self.trial.target}{rounded}"
        return f"seed {seeds[0]}: {self.what.strip()}\n  reproduce: python -m tests.fuzz {command}"


@dataclass
class Report:
    """Failures of a trial, and what took part in it."""

    failures: list[Failure] = field(default_factory=list[Failure])
    ops: set[type[DlOp]] = field(default_factory=set[type[DlOp]])
    results: int = 0
    programs: int = 0


def trials(seed: int, count: int, target: str | None = None, batch: int = BATCH, precision: str = "f32") -> list[Trial]:
    """The programs of `count` seeds from `seed` on; without a target, the targets in turn."""
    return [
        Trial(tuple(range(s, min(s + batch, seed + count))), target or TARGETS[s // batch % len(TARGETS)], precision)
        for s in range(seed, seed + count, batch)
    ]


def run(trial: Trial) -> Report:
    """Compiles and compares; what fails is tried again by itself."""
    report = _attempt(trial)
    if len(trial.seeds) == 1 or not report.failures:
        return report
    alone = [f for seed in trial.seeds for f in _attempt(replace(trial, seeds=(seed,))).failures]
    report.failures = alone or [Failure(trial, f"only together: {f.what}") for f in report.failures[:1]]
    return report


def _attempt(trial: Trial) -> Report:
    report, at = Report(programs=len(trial.seeds)), "making the program"
    try:
        batch = Batch(random_program if trial.precision == "f32" else rounded_program, trial.seeds)
        report.ops, report.results = batch.ops, len(batch.owners)
        at = "the reference"
        expected = evaluate(batch.program.module, batch.inputs, batch.program.weights)
        wanted = batch.expected
        if trial.precision != "f32":
            wanted = expected_of(batch.program, batch.inputs, trial.precision)
            assert wanted is not None
        at = "compiling"
        model = compile(batch.program, trial.target, replace(OPTIONS, precision=trial.precision))
        at = "running"
        got = [np.asarray(r) for r in model.run_unchecked(batch.inputs)]
    except Exception:
        report.failures.append(Failure(trial, f"{at}:\n{traceback.format_exc()}"))
        return report
    for seed, want, *made in zip(batch.owners, wanted, expected, got, strict=True):
        for who, array in zip(("reference", trial.target), made, strict=True):
            if wrong := difference(array, want):
                report.failures.append(Failure(replace(trial, seeds=(seed,)), f"{who}: {wrong}"))
    return report


def fuzz(chosen: Sequence[Trial], jobs: int, progress: Callable[[Report], None] = lambda report: None) -> Iterator[Failure]:
    """The failures of all trials, crashes and hangs among them; `progress` hears of every trial."""
    again: list[Trial] = []
    for outcome in supervised(run, chosen, jobs=jobs, seconds=SECONDS, run=8):
        if outcome.death is None:
            assert isinstance(outcome.result, Report)
            progress(outcome.result)
            yield from outcome.result.failures
        elif len(outcome.item.seeds) > 1:
            # Which of its programs it was: each in a process of its own.
            again += [replace(outcome.item, seeds=(seed,)) for seed in outcome.item.seeds]
        else:
            yield Failure(outcome.item, outcome.death)
    if again:
        yield from fuzz(again, jobs, progress)

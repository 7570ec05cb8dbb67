"""Compare random programs, compiled in batches, with the reference evaluator."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dlc.backends.reference import evaluate
from dlc.compiler import compile
from dlc.dialects.dl.base import DlOp
from dlc.instrument.reproducer import environment_prefix
from dlc.options import Options
from dlc.target import host_supports, resolve
from tests.fuzz.bounded_value import difference
from tests.fuzz.draw_program import random_program, rounded_program
from tests.fuzz.program_bounds import expected_results
from tests.fuzz.random_program import Batch
from tests.fuzz.supervise import run_supervised

OPTIONS = Options(num_threads=1, workers=1, cache=False)
# Mostly the best level of this machine.
TARGETS = [t for t in (*["cpu"] * 6, "cpu:avx2", "cpu:generic") if host_supports(resolve(t))]
BATCH = 25
# The timeout of one batch, generous because LLVM may take long.
TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Trial:
    """Programs that are compiled as one module, and their target."""

    seeds: tuple[int, ...]
    target: str
    precision: str = "f32"


@dataclass(frozen=True)
class Failure:
    """A program with a wrong result, or several that fail only when they are compiled together."""

    trial: Trial
    message: str

    def __str__(self) -> str:
        seeds, precision = self.trial.seeds, self.trial.precision
        batch = f" --batch {len(seeds)}" if len(seeds) > 1 else ""
        rounded = f" --precision {precision}" if precision != "f32" else ""
        command = f"programs --seed {seeds[0]} --count {len(seeds)}{batch} --target {self.trial.target}{rounded}"
        return f"seed {seeds[0]}: {self.message.strip()}\n  reproduce: {environment_prefix()}python -m tests.fuzz {command}"


@dataclass
class Report:
    """Failures of a trial, and statistics."""

    failures: list[Failure] = field(default_factory=list[Failure])
    ops: set[type[DlOp]] = field(default_factory=set[type[DlOp]])
    results: int = 0
    programs: int = 0


def trials(seed: int, count: int, target: str | None = None, batch: int = BATCH, precision: str = "f32") -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on; without a target, the targets in turn."""
    return [
        Trial(tuple(range(s, min(s + batch, seed + count))), target or TARGETS[s // batch % len(TARGETS)], precision)
        for s in range(seed, seed + count, batch)
    ]


def run(trial: Trial) -> Report:
    """Compile and compare a batch; if it fails, find the failing programs by running each alone."""
    report = _attempt(trial)
    if len(trial.seeds) == 1 or not report.failures:
        return report
    single_failures = [f for seed in trial.seeds for f in _attempt(replace(trial, seeds=(seed,))).failures]
    report.failures = single_failures or [Failure(trial, f"only in a batch: {f.message}") for f in report.failures[:1]]
    return report


def _attempt(trial: Trial) -> Report:
    report, stage = Report(programs=len(trial.seeds)), "drawing the programs"
    try:
        batch = Batch(random_program if trial.precision == "f32" else rounded_program, trial.seeds)
        report.ops, report.results = batch.ops, len(batch.owners)
        stage = "the reference"
        expected = evaluate(batch.program.module, batch.inputs, batch.program.weights)
        bounds = batch.expected
        if trial.precision != "f32":
            bounds = expected_results(batch.program, batch.inputs, trial.precision)
            assert bounds is not None
        stage = "compiling"
        model = compile(batch.program, trial.target, replace(OPTIONS, precision=trial.precision))
        stage = "running"
        got = [np.asarray(r) for r in model.run_unchecked(batch.inputs)]
    except Exception:
        report.failures.append(Failure(trial, f"{stage}:\n{traceback.format_exc()}"))
        return report
    for seed, want, *results in zip(batch.owners, bounds, expected, got, strict=True):
        for producer, array in zip(("reference", trial.target), results, strict=True):
            if mismatch := difference(array, want):
                report.failures.append(Failure(replace(trial, seeds=(seed,)), f"{producer}: {mismatch}"))
    return report


def fuzz(
    selected_trials: Sequence[Trial], jobs: int, progress: Callable[[Report], None] = lambda report: None
) -> Iterator[Failure]:
    """Yield the failures of all trials, crashes and hangs included; `progress` is called after each trial."""
    retries: list[Trial] = []
    for outcome in run_supervised(run, selected_trials, jobs=jobs, seconds=TIMEOUT_SECONDS, items_per_child=8):
        if outcome.death is None:
            assert isinstance(outcome.result, Report)
            progress(outcome.result)
            yield from outcome.result.failures
        elif len(outcome.item.seeds) > 1:
            # Find the failing program: run each in its own process.
            retries += [replace(outcome.item, seeds=(seed,)) for seed in outcome.item.seeds]
        else:
            yield Failure(outcome.item, outcome.death)
    if retries:
        yield from fuzz(retries, jobs, progress)

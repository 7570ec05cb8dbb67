"""Trials: the seeds of a fuzzer with their targets, and the outcomes of running them under supervision."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from dlc.instrument.reproducer import environment_prefix
from tests.fuzz.supervise import run_supervised

P = TypeVar("P")
T = TypeVar("T")
# A trial, a word that classifies its outcome, and a description of the failure or None.
TrialOutcome: TypeAlias = "tuple[T, str, str | None]"


@dataclass(frozen=True)
class Trial:
    """A seed of a fuzzer and the targets on which its program runs; without targets, the fuzzer draws one."""

    fuzzer: str
    seed: int
    targets: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The only target."""
        (target,) = self.targets
        return target

    @property
    def options(self) -> str:
        """The options of the command that runs the trial, in addition to its seed."""
        return f" --target {self.target}" if len(self.targets) == 1 else ""

    def __str__(self) -> str:
        command = f"{environment_prefix()}python -m tests.fuzz {self.fuzzer} --seed {self.seed} --count 1{self.options}"
        return f"seed {self.seed}: reproduce: {command}"


def trial_outcomes(
    run: Callable[[T], tuple[str, str | None]],
    trials: Sequence[T],
    jobs: int,
    seconds: float,
    *,
    memory: int | None = None,
    items_per_child: int = 50,
) -> Iterator[TrialOutcome[T]]:
    """Yield the outcomes of `run` for all trials, crashes and hangs included: these are failures that `died`.

    The limits are those of `run_supervised`.
    """
    for outcome in run_supervised(run, trials, jobs=jobs, seconds=seconds, memory=memory, items_per_child=items_per_child):
        if outcome.death is not None:
            yield outcome.item, "died", outcome.death
        else:
            assert isinstance(outcome.result, tuple)
            yield outcome.item, *outcome.result


def compared(mismatches: Sequence[str]) -> tuple[str, str | None]:
    """Return the outcome of a comparison with these mismatches."""
    return ("wrong", "\n".join(mismatches)) if mismatches else ("compared", None)


def run_checks(program: P, trial: Trial, checks: Sequence[Callable[[P, int, str], str | None]]) -> tuple[str, str | None]:
    """Return the outcome of checks of a program, its seed and a target on all targets; an exception is a mismatch."""
    failures: list[str] = []
    for target in trial.targets:
        for check in checks:
            try:
                with warnings.catch_warnings():
                    # NumPy warns of integers that overflow, dlc of symbolic sizes that it specializes.
                    warnings.simplefilter("ignore")
                    mismatch = check(program, trial.seed, target)
            except Exception:
                mismatch = traceback.format_exc()
            if mismatch is not None:
                failures.append(f"{target}: {check.__name__}: {mismatch}")
    return compared(failures)

"""Random programs of nested loops and branches: what `dlc.lax` makes of them, beside Python's own loops over NumPy."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import lax
from tests.fuzz.random_control import PLAIN, Interpreter, RandomControl
from tests.fuzz.supervise import supervised
from tests.fuzz.tracked import Tracked, difference

# "plain" runs dlc.lax outside of a traced function.
TARGETS = ("plain", "reference", "cpu")
SECONDS = 120


@dataclass(frozen=True)
class Trial:
    """A program and what to run it on."""

    seed: int
    targets: tuple[str, ...] = TARGETS


@dataclass(frozen=True)
class Failure:
    """A program that went wrong."""

    trial: Trial
    what: str

    def __str__(self) -> str:
        seed = self.trial.seed
        return f"seed {seed}: {self.what.strip()}\n  reproduce: python -m tests.fuzz control --seed {seed} --count 1"


def run(trial: Trial) -> list[Failure]:
    """What differs from Python's own loops."""
    program = RandomControl(trial.seed)
    expected = Interpreter(np, PLAIN).run(program.body, {}, program.inputs)
    failures: list[Failure] = []
    for target in trial.targets:
        try:
            results = _results(program, target)
        except Exception:
            failures.append(Failure(trial, f"{target}:\n{traceback.format_exc()}"))
            continue
        for k, (got, want) in enumerate(zip(results, expected, strict=True)):
            if wrong := difference(np.asarray(got), Tracked(np.asarray(want))):
                failures.append(Failure(trial, f"{target}: result {k}: {wrong}"))
    return failures


def _results(program: RandomControl, target: str) -> Sequence[Any]:
    interpreter = Interpreter(dnp, lax)

    def function(*inputs: Any) -> Any:
        return interpreter.run(program.body, {}, inputs)

    if target != "plain":
        function = dlc.jit(target=target, num_threads=1, cache=False)(function)
    return function(*program.inputs)


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """The programs of `count` seeds from `seed` on."""
    return [Trial(s, (target,) if target else TARGETS) for s in range(seed, seed + count)]


def fuzz(chosen: Sequence[Trial], jobs: int, progress: Callable[[Trial], None] = lambda trial: None) -> Iterator[Failure]:
    """The failures of all trials, crashes and hangs among them; `progress` hears of every trial."""
    for outcome in supervised(run, chosen, jobs=jobs, seconds=SECONDS):
        progress(outcome.item)
        if outcome.death is not None:
            yield Failure(outcome.item, outcome.death)
            continue
        assert isinstance(outcome.result, list)
        yield from outcome.result

"""Latencies measured fairly: runs of several programs take turns, since clock rates vary and machines are shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter, sleep

Run = Callable[[], object]
Clock = Callable[[], float]

# A turn lasts so long at least, or so many runs: a short program finds its caches as it left them, but for the first run.
_TURN, _MOST_IN_TURN = 1e-3, 50
# With several threads a turn is several runs after a pause that is longer than any runtime's threads spin: the waiting threads
# of one would slow down another.
_BLOCK, _PAUSE = 5, 0.03
_MOST_RUNS = 10_000


@dataclass(frozen=True)
class Latency:
    """The seconds of each of a program's runs, ascending."""

    runs: tuple[float, ...]

    @property
    def least(self) -> float:
        """The fastest run."""
        return self.runs[0]

    @property
    def median(self) -> float:
        """The run in the middle."""
        return median(self.runs)

    @property
    def ninth_decile(self) -> float:
        """Nine of ten runs are at least as fast."""
        return self.runs[len(self.runs) * 9 // 10]


def interleaved(runs: Mapping[str, Run], seconds: float, threads: int = 1, clock: Clock = perf_counter) -> dict[str, Latency]:
    """The latency of each program over about `seconds` in all, after a run of each that is not counted.

    With `process_time` for a clock programs of one thread are measured beside others that use the machine.
    """
    for run in runs.values():
        run()
    once = max([_timed(run, clock) for run in runs.values()])
    times: dict[str, list[float]] = {name: [] for name in runs}
    alone = threads == 1 or len(runs) == 1
    turn = max(1 if alone else _BLOCK, min(_MOST_IN_TURN, int(_TURN / once)))
    end = perf_counter() + seconds
    while True:
        for name, run in runs.items():
            if not alone:
                sleep(_PAUSE)
            if turn > 1:
                run()
            times[name] += [_timed(run, clock) for _ in range(turn)]
        if perf_counter() >= end or len(next(iter(times.values()))) >= _MOST_RUNS:
            return {name: Latency(tuple(sorted(t))) for name, t in times.items()}


def _timed(run: Run, clock: Clock) -> float:
    began = clock()
    run()
    return clock() - began

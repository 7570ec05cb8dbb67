"""Measure latencies fairly: programs run interleaved, since clock rates vary and machines are shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter, sleep

Run = Callable[[], object]
Clock = Callable[[], float]

# Minimum duration of a turn, or its maximum number of runs. In a long turn, the data of a short program is in cache.
_MIN_TURN_SECONDS, _MAX_RUNS_PER_TURN = 1e-3, 50
# With several threads, a turn is a block of runs after a pause that exceeds the spin time of every runtime: the spinning
# threads of one runtime would slow down another.
_RUNS_PER_BLOCK, _PAUSE_SECONDS = 5, 0.03
_MAX_RUNS = 10_000


@dataclass(frozen=True)
class Latency:
    """The times of a program's runs in seconds, ascending."""

    runs: tuple[float, ...]

    @property
    def fastest(self) -> float:
        """The minimum."""
        return self.runs[0]

    @property
    def median(self) -> float:
        """The median."""
        return median(self.runs)

    @property
    def percentile_90(self) -> float:
        """The 90th percentile."""
        return self.runs[len(self.runs) * 9 // 10]


def measure_interleaved(
    runs: Mapping[str, Run], seconds: float, threads: int = 1, clock: Clock = perf_counter
) -> dict[str, Latency]:
    """Return the latency of each program, measured for about `seconds` in total after a warm-up run of each.

    With the clock `process_time`, single-threaded programs can be measured on a machine that others use.
    """
    for run in runs.values():
        run()
    slowest_seconds = max([_timed(run, clock) for run in runs.values()])
    times: dict[str, list[float]] = {name: [] for name in runs}
    is_single = threads == 1 or len(runs) == 1
    runs_per_turn = max(1 if is_single else _RUNS_PER_BLOCK, min(_MAX_RUNS_PER_TURN, int(_MIN_TURN_SECONDS / slowest_seconds)))
    end = perf_counter() + seconds
    while True:
        for name, run in runs.items():
            if not is_single:
                sleep(_PAUSE_SECONDS)
            if runs_per_turn > 1:
                run()
            times[name] += [_timed(run, clock) for _ in range(runs_per_turn)]
        if perf_counter() >= end or len(next(iter(times.values()))) >= _MAX_RUNS:
            return {name: Latency(tuple(sorted(t))) for name, t in times.items()}


def _timed(run: Run, clock: Clock) -> float:
    start = clock()
    run()
    return clock() - start

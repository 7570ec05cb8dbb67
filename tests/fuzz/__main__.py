"""`python -m tests.fuzz programs|control|counts|lanes|derivatives|graphs|files --count N --seed S`: exit status 1 if anything is found."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable

from dlc.machine.cpus import usable_cpus
from tests.fuzz import control, counts, derivatives, files, graphs, lanes, programs
from tests.fuzz.sums import PRECISIONS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name in ("programs", "control", "counts", "lanes", "derivatives", "graphs", "files"):
        command = kinds.add_parser(name)
        command.add_argument("--count", type=int, default=1000, help="how many seeds")
        command.add_argument("--seed", type=int, default=0, help="the first of them")
        command.add_argument("--jobs", type=int, default=usable_cpus(), help="processes at work at once")
    kinds.choices["programs"].add_argument("--target", help="one target for all; else the levels of the CPU in turn")
    kinds.choices["programs"].add_argument("--batch", type=int, default=programs.BATCH, help="programs compiled together")
    kinds.choices["control"].add_argument(
        "--target", choices=(*control.TARGETS, *control.DEVICES), help="one of them; else all that take no device"
    )
    kinds.choices["counts"].add_argument("--target", help="one target; else the CPU")
    kinds.choices["lanes"].add_argument("--target", help="one target; else the reference and the CPU")
    kinds.choices["derivatives"].add_argument("--target", help="one target; else the reference mostly, and the CPU")
    kinds.choices["graphs"].add_argument("--target", help="one target; else the reference mostly, and the CPU")
    for name in ("programs", "graphs"):
        kinds.choices[name].add_argument(
            "--precision", default="f32", choices=("f32", *PRECISIONS), help="of what contractions with weights multiply"
        )
    families = list(files.FAMILIES)
    kinds.choices["files"].add_argument("--of", action="append", choices=families, help="kinds of files; all of them if none")
    given = parser.parse_args()
    # What is compiled here is of no use to anybody later.
    os.environ["DLC_CACHE"] = "0"
    # Programs are shared out to processes, not the kernels of each.
    os.environ["DLC_WORKERS"] = "1"
    fuzzers = {
        "programs": fuzz_programs,
        "control": fuzz_control,
        "counts": fuzz_counts,
        "lanes": fuzz_lanes,
        "derivatives": fuzz_derivatives,
        "graphs": fuzz_graphs,
        "files": fuzz_files,
    }
    return fuzzers[given.kind](given)


class Progress:
    """A line about how far a run is, where someone watches, and a summary at its end."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.done = 0
        self.failed = 0
        self.began = self.said = time.monotonic()

    def line(self) -> str:
        seconds = time.monotonic() - self.began
        return f"{self.done} of {self.count}, {self.failed} failed, {seconds:.0f} s, {self.done / seconds:.1f} per second"

    def step(self, done: int) -> None:
        self.done += done
        if sys.stderr.isatty():
            print(f"\r{self.line()}  ", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self.said > 60:
            self.said = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def failure(self, text: object) -> None:
        self.failed += 1
        print(f"\n{text}", flush=True)


def fuzz_programs(given: argparse.Namespace) -> int:
    progress, results = Progress(given.count), 0

    def heard(report: programs.Report) -> None:
        nonlocal results
        results += report.results
        progress.step(report.programs)

    chosen = programs.trials(given.seed, given.count, given.target, given.batch, given.precision)
    for failure in programs.fuzz(chosen, given.jobs, heard):
        progress.failure(failure)
    print(progress.line(), results, "results")
    return 1 if progress.failed else 0


def fuzz_control(given: argparse.Namespace) -> int:
    return _counted(given, control.fuzz(control.trials(given.seed, given.count, given.target), given.jobs))


def fuzz_counts(given: argparse.Namespace) -> int:
    return _counted(given, counts.fuzz(counts.trials(given.seed, given.count, given.target), given.jobs))


def fuzz_lanes(given: argparse.Namespace) -> int:
    return _summary(given, lambda heard: lanes.fuzz(lanes.trials(given.seed, given.count, given.target), given.jobs, heard))


def fuzz_derivatives(given: argparse.Namespace) -> int:
    chosen = derivatives.trials(given.seed, given.count, given.target)
    return _summary(given, lambda heard: derivatives.fuzz(chosen, given.jobs, heard))


def _summary(given: argparse.Namespace, fuzz: Callable[[Callable[[object], None]], Iterable[object]]) -> int:
    progress = Progress(given.count)
    for failure in fuzz(lambda trial: progress.step(1)):
        progress.failure(failure)
    print(progress.line())
    return 1 if progress.failed else 0


def fuzz_graphs(given: argparse.Namespace) -> int:
    return _counted(given, graphs.fuzz(graphs.trials(given.seed, given.count, given.target, given.precision), given.jobs))


def fuzz_files(given: argparse.Namespace) -> int:
    chosen = files.trials(given.seed, given.count, given.of or list(files.FAMILIES))
    return _counted(given, files.fuzz(chosen, given.jobs))


def _counted(given: argparse.Namespace, outcomes: Iterable[tuple[object, str, str | None]]) -> int:
    """Reports failures, and how many trials became what."""
    progress, became = Progress(given.count), Counter[str]()
    for trial, what, wrong in outcomes:
        progress.step(1)
        became[what] += 1
        if wrong is not None:
            progress.failure(f"{trial}\n{wrong.strip()}")
    print(progress.line(), *(f"{n} {what}" for what, n in became.most_common()), sep=", ")
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main())

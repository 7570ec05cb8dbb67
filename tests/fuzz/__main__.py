"""Run a fuzzer: `python -m tests.fuzz FUZZER --count N --seed S`. The exit status is 1 if anything was found."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable

from dlc.machine.cpus import usable_cpus
from tests.fuzz import batching, control, data_dependent, derivatives, files, graphs, loops, plans, programs, shapes, shardings
from tests.fuzz.progress import Progress
from tests.fuzz.reduction_bounds import PRECISIONS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name in (
        "programs",
        "control",
        "data_dependent",
        "batching",
        "derivatives",
        "loops",
        "graphs",
        "shapes",
        "shardings",
        "files",
        "plans",
    ):
        command = kinds.add_parser(name)
        command.add_argument("--count", type=int, default=1000, help="number of seeds")
        command.add_argument("--seed", type=int, default=0, help="the first seed")
        command.add_argument("--jobs", type=int, default=usable_cpus(), help="number of worker processes")
    kinds.choices["programs"].add_argument("--target", help="run all programs on this target (default: the CPU levels in turn)")
    kinds.choices["programs"].add_argument("--batch", type=int, default=programs.BATCH, help="programs compiled together")
    kinds.choices["control"].add_argument(
        "--target",
        choices=(*control.TARGETS, *control.DEVICES),
        help="run on this target (default: all that need no OpenCL device)",
    )
    kinds.choices["data_dependent"].add_argument("--target", help="run on this target (default: cpu)")
    kinds.choices["batching"].add_argument("--target", help="run on this target (default: reference and cpu)")
    kinds.choices["derivatives"].add_argument("--target", help="run on this target (default: mostly reference, sometimes cpu)")
    kinds.choices["loops"].add_argument("--target", help="run on this target (default: cpu and reference)")
    kinds.choices["graphs"].add_argument("--target", help="run on this target (default: mostly reference, sometimes cpu)")
    kinds.choices["shapes"].add_argument("--target", help="run on this target (default: mostly reference, sometimes cpu)")
    kinds.choices["shardings"].add_argument(
        "--target", help="run ranks on this target (default: mostly reference, sometimes cpu)"
    )
    kinds.choices["plans"].add_argument("--target", help="compile for this target (default: all)")
    for name in ("programs", "graphs"):
        kinds.choices[name].add_argument(
            "--precision", default="f32", choices=("f32", *PRECISIONS), help="precision of contractions with weights"
        )
    families = list(files.FAMILIES)
    kinds.choices["files"].add_argument(
        "--of", action="append", choices=families, help="kind of files; repeatable (default: all)"
    )
    arguments = parser.parse_args()
    # Compiled programs are never reused: do not fill the cache.
    os.environ["DLC_CACHE"] = "0"
    # Parallelism is over programs, not over the kernels of one program.
    os.environ["DLC_WORKERS"] = "1"
    fuzzers = {
        "programs": fuzz_programs,
        "control": fuzz_control,
        "data_dependent": fuzz_data_dependent,
        "batching": fuzz_batching,
        "derivatives": fuzz_derivatives,
        "loops": fuzz_loops,
        "graphs": fuzz_graphs,
        "shapes": fuzz_shapes,
        "shardings": fuzz_shardings,
        "files": fuzz_files,
        "plans": fuzz_plans,
    }
    return fuzzers[arguments.kind](arguments)


def fuzz_programs(arguments: argparse.Namespace) -> int:
    progress, results = Progress(arguments.count), 0

    def report_progress(report: programs.Report) -> None:
        nonlocal results
        results += report.results
        progress.step(report.programs)

    trials = programs.trials(arguments.seed, arguments.count, arguments.target, arguments.batch, arguments.precision)
    for failure in programs.fuzz(trials, arguments.jobs, report_progress):
        progress.failure(failure)
    print(progress.line(), results, "results")
    return 1 if progress.failed else 0


def fuzz_control(arguments: argparse.Namespace) -> int:
    return _report_outcomes(
        arguments, control.fuzz(control.trials(arguments.seed, arguments.count, arguments.target), arguments.jobs)
    )


def fuzz_data_dependent(arguments: argparse.Namespace) -> int:
    return _report_outcomes(
        arguments, data_dependent.fuzz(data_dependent.trials(arguments.seed, arguments.count, arguments.target), arguments.jobs)
    )


def fuzz_batching(arguments: argparse.Namespace) -> int:
    return _report_failures(
        arguments,
        lambda report_progress: batching.fuzz(
            batching.trials(arguments.seed, arguments.count, arguments.target), arguments.jobs, report_progress
        ),
    )


def fuzz_derivatives(arguments: argparse.Namespace) -> int:
    trials = derivatives.trials(arguments.seed, arguments.count, arguments.target)
    return _report_failures(arguments, lambda report_progress: derivatives.fuzz(trials, arguments.jobs, report_progress))


def fuzz_loops(arguments: argparse.Namespace) -> int:
    trials = loops.trials(arguments.seed, arguments.count, arguments.target)
    return _report_failures(arguments, lambda report_progress: loops.fuzz(trials, arguments.jobs, report_progress))


def fuzz_shardings(arguments: argparse.Namespace) -> int:
    trials = shardings.trials(arguments.seed, arguments.count, arguments.target)
    return _report_failures(arguments, lambda report_progress: shardings.fuzz(trials, arguments.jobs, report_progress))


def fuzz_plans(arguments: argparse.Namespace) -> int:
    trials = plans.trials(arguments.seed, arguments.count, arguments.target)
    return _report_failures(arguments, lambda report_progress: plans.fuzz(trials, arguments.jobs, report_progress))


def _report_failures(arguments: argparse.Namespace, fuzz: Callable[[Callable[[object], None]], Iterable[object]]) -> int:
    progress = Progress(arguments.count)
    for failure in fuzz(lambda trial: progress.step(1)):
        progress.failure(failure)
    print(progress.line())
    return 1 if progress.failed else 0


def fuzz_graphs(arguments: argparse.Namespace) -> int:
    return _report_outcomes(
        arguments,
        graphs.fuzz(graphs.trials(arguments.seed, arguments.count, arguments.target, arguments.precision), arguments.jobs),
    )


def fuzz_shapes(arguments: argparse.Namespace) -> int:
    return _report_outcomes(
        arguments, shapes.fuzz(shapes.trials(arguments.seed, arguments.count, arguments.target), arguments.jobs)
    )


def fuzz_files(arguments: argparse.Namespace) -> int:
    trials = files.trials(arguments.seed, arguments.count, arguments.of or list(files.FAMILIES))
    return _report_outcomes(arguments, files.fuzz(trials, arguments.jobs))


def _report_outcomes(arguments: argparse.Namespace, outcomes: Iterable[tuple[object, str, str | None]]) -> int:
    """Report failures, and count the trials by outcome."""
    progress, counts = Progress(arguments.count), Counter[str]()
    for trial, outcome, mismatch in outcomes:
        progress.step(1)
        counts[outcome] += 1
        if mismatch is not None:
            progress.failure(f"{trial}\n{mismatch.strip()}")
    print(progress.line(), *(f"{n} {outcome}" for outcome, n in counts.most_common()), sep=", ")
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main())

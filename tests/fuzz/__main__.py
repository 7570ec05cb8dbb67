"""Run a fuzzer: `python -m tests.fuzz FUZZER --count N --seed S`. The exit status is 1 if anything was found."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable
from types import ModuleType

from dlc.machine.cpus import usable_cpus
from tests.fuzz import (
    batching,
    control,
    data_dependent,
    derivatives,
    edge_values,
    files,
    graphs,
    kernels,
    loops,
    onnx_attributes,
    plans,
    programs,
    ranks,
    regions,
    shapes,
    shardings,
    torch_functions,
)
from tests.fuzz.progress import Progress
from tests.fuzz.reduction_bounds import PRECISIONS
from tests.fuzz.trials import TrialOutcome

# Fuzzers of one program per seed, with no options but the target.
FUZZERS: dict[str, ModuleType] = {
    "control": control,
    "data_dependent": data_dependent,
    "batching": batching,
    "derivatives": derivatives,
    "loops": loops,
    "kernels": kernels,
    "shapes": shapes,
    "edge_values": edge_values,
    "onnx_attributes": onnx_attributes,
    "ranks": ranks,
    "regions": regions,
    "shardings": shardings,
    "torch_functions": torch_functions,
    "plans": plans,
}
_MOSTLY_REFERENCE = "mostly reference, sometimes cpu"
DEFAULT_TARGETS = {
    "data_dependent": "cpu",
    "ranks": "cpu",
    "batching": "reference and cpu",
    **dict.fromkeys(("loops", "kernels"), "cpu and reference"),
    "plans": "all",
    "torch_functions": "reference",
    **dict.fromkeys(
        ("derivatives", "edge_values", "graphs", "onnx_attributes", "regions", "shapes", "shardings"), _MOSTLY_REFERENCE
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name in ("programs", "graphs", "files", *FUZZERS):
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
    for name, default in DEFAULT_TARGETS.items():
        kinds.choices[name].add_argument("--target", help=f"run on this target (default: {default})")
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
    fuzzers = {"programs": fuzz_programs, "graphs": fuzz_graphs, "files": fuzz_files}
    if arguments.kind in fuzzers:
        return fuzzers[arguments.kind](arguments)
    fuzzer = FUZZERS[arguments.kind]
    trials = fuzzer.trials(arguments.seed, arguments.count, arguments.target)
    return _report_outcomes(arguments, fuzzer.fuzz(trials, arguments.jobs))


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


def fuzz_graphs(arguments: argparse.Namespace) -> int:
    return _report_outcomes(
        arguments,
        graphs.fuzz(graphs.trials(arguments.seed, arguments.count, arguments.target, arguments.precision), arguments.jobs),
    )


def fuzz_files(arguments: argparse.Namespace) -> int:
    trials = files.trials(arguments.seed, arguments.count, arguments.of or list(files.FAMILIES))
    return _report_outcomes(arguments, files.fuzz(trials, arguments.jobs))


def _report_outcomes(arguments: argparse.Namespace, outcomes: Iterable[TrialOutcome[object]]) -> int:
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

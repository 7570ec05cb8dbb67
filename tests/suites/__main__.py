"""Run a suite of tests that others wrote. The exit status is 1 if any result is wrong or any case crashes."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

from dlc.machine.cpus import usable_cpus
from tests.fuzz.progress import Progress
from tests.suites.journal import read_journal, write_journal
from tests.suites.page import PAGE, conformance_page
from tests.suites.record import Record, differences, read_record, record_of, write_record
from tests.suites.suite import OUTCOMES, CaseOutcome, Suite, run_cases, select_cases

# The module of each suite, imported when it runs: most need packages that dlc does not depend on.
SUITES = {
    "array-api": "array_api",
    "numpy": "numpy_suite",
    "onnx-node": "onnx_node",
    "jax": "jax_harnesses",
    "stablehlo": "stablehlo_interpreter",
    "torch-mlir": "torch_mlir",
    "torch-opinfo": "torch_opinfo",
    "torch-rules": "torch_rules",
}


def main(words: list[str]) -> int:
    chosen = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    chosen.add_argument("suite", choices=SUITES)
    name = chosen.parse_args(words[:1]).suite
    module = import_module(f"tests.suites.{SUITES[name]}")
    parser = argparse.ArgumentParser(prog=f"python -m tests.suites {name}", description=module.__doc__)
    module.add_arguments(parser)
    parser.add_argument("--filter", default="", metavar="REGEX", help="run the cases whose name contains a match")
    parser.add_argument("--limit", type=int, help="run up to this many cases, at equal distances")
    parser.add_argument("--jobs", type=int, default=usable_cpus(), help="number of worker processes")
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="append outcomes to a file, and skip the cases that it already has"
    )
    parser.add_argument("--failures", type=int, default=20, help="number of wrong and crashed cases to list (default: 20)")
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument("--update-docs", action="store_true", help="record the results, and write docs/conformance.md")
    actions.add_argument("--check", action="store_true", help="fail if a result is not the recorded one")
    arguments = parser.parse_args(words[1:])
    if arguments.update_docs and arguments.filter:
        parser.error("--update-docs records a whole suite, or a sample of it: omit --filter")
    warnings.simplefilter("ignore")
    # Compiled programs are never reused: do not fill the cache. Parallelism is over cases.
    os.environ["DLC_CACHE"], os.environ["DLC_WORKERS"] = "0", "1"
    return run_suite(name, module.suite(arguments), arguments)


def run_suite(name: str, suite: Suite, arguments: argparse.Namespace) -> int:
    selected = select_cases(suite.names, arguments.filter, arguments.limit)
    outcomes = journaled_cases(suite, selected, arguments.journal, arguments.jobs)
    failed = sum(result.outcome in ("wrong", "crashed") for result in outcomes)
    record = record_of(suite.conditions, len(suite.names), outcomes)
    print_results(name, record, outcomes, arguments.failures)
    if arguments.update_docs:
        write_record(name, record)
        PAGE.write_text(conformance_page())
    changed = differences(read_record(name), outcomes) if arguments.check else []
    for line in changed:
        print(line)
    return 1 if changed or failed else 0


def journaled_cases(suite: Suite, names: list[str], journal: Path | None, jobs: int) -> list[CaseOutcome]:
    """Run the cases that a journal does not have, and return the outcomes of all."""
    recorded = {result.name: result for result in read_journal(journal)} if journal else {}
    outcomes = [recorded[name] for name in names if name in recorded]
    missing = [name for name in names if name not in recorded]
    results, progress = run_cases(suite, missing, jobs), Progress(len(missing))
    for result in write_journal(journal, results) if journal else results:
        outcomes.append(result)
        progress.failed += result.outcome in ("wrong", "crashed")
        progress.step(1)
    print(progress.line())
    return outcomes


def print_results(name: str, record: Record, outcomes: list[CaseOutcome], max_failures: int) -> None:
    """Print the counts by outcome, remarks and reasons, and the first wrong and crashed cases."""
    print(f"{name}: {record.conditions}; {sum(record.counts.values())} of {record.total} cases")
    for outcome in OUTCOMES:
        print(f"{record.counts[outcome]:7} {outcome}")
        remarks = [result.reason for result in outcomes if result.outcome == outcome == "right" and result.reason]
        for remark in sorted(set(remarks)):
            print(f"{remarks.count(remark):11} {remark}")
    for (outcome, reason), names in record.by_reason:
        if outcome == "refused":
            print(f"refused: {len(names)} × {reason}, e.g. {names[0]}")
    failures = [result for result in outcomes if result.outcome in ("wrong", "crashed")]
    for failure in failures[:max_failures]:
        print(f"{failure.outcome}: {failure.name}: {failure.reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The recorded results of each suite, `gaps/SUITE.txt`: conditions, counts, and the cases that are not right, by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.suites.suite import OUTCOMES, CaseOutcome

FOLDER = Path(__file__).with_name("gaps")


@dataclass(frozen=True)
class Record:
    """The results of a run.

    `counts` has the number of cases by outcome, `total` the number of cases of the suite, more than were run if they were
    sampled. `gaps` has the cases that are not right.
    """

    conditions: str
    total: int
    counts: dict[str, int]
    gaps: dict[str, CaseOutcome]

    @property
    def by_reason(self) -> list[tuple[tuple[str, str], list[str]]]:
        """The gaps by outcome and reason, the most frequent first."""
        groups = dict[tuple[str, str], list[str]]()
        for gap in self.gaps.values():
            groups.setdefault((gap.outcome, gap.reason), []).append(gap.name)
        return sorted(((key, sorted(names)) for key, names in groups.items()), key=lambda group: (-len(group[1]), group[0]))


def record_of(conditions: str, total: int, outcomes: Iterable[CaseOutcome]) -> Record:
    outcomes = list(outcomes)
    counts = Counter(result.outcome for result in outcomes)
    gaps = {result.name: result for result in outcomes if result.outcome != "right"}
    return Record(conditions, total, {outcome: counts[outcome] for outcome in OUTCOMES}, gaps)


def recorded_suites() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def read_record(suite: str) -> Record:
    """Raises FileNotFoundError for a suite without a record."""
    conditions, summary, *lines = (FOLDER / f"{suite}.txt").read_text().splitlines()
    total, _, counts = summary.removeprefix("# ").partition(" cases: ")
    gaps, outcome, reason = dict[str, CaseOutcome](), "", ""
    for line in lines:
        if line.startswith("    "):
            gaps[line.strip()] = CaseOutcome(line.strip(), outcome, reason)
        else:
            outcome, _, reason = line.partition(": ")
    by_outcome = {name: int(count) for count, name in (part.split() for part in counts.split(", "))}
    return Record(conditions.removeprefix("# "), int(total), by_outcome, gaps)


def write_record(suite: str, record: Record) -> None:
    counts = ", ".join(f"{record.counts[outcome]} {outcome}" for outcome in OUTCOMES)
    lines = [f"# {record.conditions}", f"# {record.total} cases: {counts}"]
    for (outcome, reason), names in record.by_reason:
        lines += [f"{outcome}: {reason}", *(f"    {name}" for name in names)]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{suite}.txt").write_text("\n".join(lines) + "\n")


def differences(recorded: Record, outcomes: Sequence[CaseOutcome]) -> list[str]:
    """Return one line for each case whose outcome or reason is not the recorded one."""
    found: list[str] = []
    for result in outcomes:
        expected = recorded.gaps.get(result.name, CaseOutcome(result.name, "right"))
        reason = "" if result.outcome == "right" else result.reason
        if (result.outcome, reason) != (expected.outcome, expected.reason):
            found.append(f"{result.name}: {result.outcome} {reason}; recorded: {expected.outcome} {expected.reason}")
    return found

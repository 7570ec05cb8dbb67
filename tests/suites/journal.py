"""The journal of a run: one JSON line for each case, by which an interrupted run continues."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from tests.suites.suite import CaseOutcome


def read_journal(path: Path) -> list[CaseOutcome]:
    """Return the outcomes of a journal; of a case that ran twice the later one. A file that does not exist is empty."""
    if not path.exists():
        return []
    outcomes = [CaseOutcome(**json.loads(line)) for line in path.read_text().splitlines()]
    return list({outcome.name: outcome for outcome in outcomes}.values())


def write_journal(path: Path, outcomes: Iterable[CaseOutcome]) -> Iterator[CaseOutcome]:
    """Yield outcomes, and append each to a journal before it."""
    with path.open("a") as file:
        for outcome in outcomes:
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            yield outcome

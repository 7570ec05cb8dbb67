"""A suite of tests that others wrote, and the outcome of each of its cases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from dlc.errors import UnsupportedError
from tests.fuzz.supervise import run_supervised

T = TypeVar("T")
TIMEOUT_SECONDS = 120
_CASES_PER_CHILD = 200
MAX_REASON_CHARACTERS = 200
# right: equal to the expected results. refused: an UnsupportedError, which names what is missing. wrong: other results.
# crashed: any other error, a signal or a timeout. excluded: not compared, for a reason that the suite's module states.
OUTCOMES = ("right", "refused", "wrong", "crashed", "excluded")


class NotComparableError(Exception):
    """A case whose results are not compared; the message is the reason."""


@dataclass(frozen=True)
class Suite:
    """The cases of a suite by name.

    `run` raises UnsupportedError for a case that dlc refuses, AssertionError for wrong results and NotComparableError for a
    case that it excludes; it returns a remark, by which right cases are counted, or "". `excluded` has the cases that are not run, with reasons. `conditions` states the
    versions of the suite and its packages, and the target.
    """

    conditions: str
    names: Sequence[str]
    run: Callable[[str], str]
    excluded: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class CaseOutcome:
    """The outcome of a case, and its reason; for a right case the remark of the suite."""

    name: str
    outcome: str
    reason: str = ""


def run_case(suite: Suite, name: str) -> CaseOutcome:
    """Run a case in this process."""
    if name in suite.excluded:
        return CaseOutcome(name, "excluded", suite.excluded[name])
    try:
        return CaseOutcome(name, "right", suite.run(name))
    except UnsupportedError as error:
        return CaseOutcome(name, "refused", general_reason(error.problems[0]))
    except NotComparableError as error:
        return CaseOutcome(name, "excluded", str(error))
    except AssertionError as error:
        return CaseOutcome(name, "wrong", one_line(str(error)) or "assertion failed")
    except Exception as error:
        return CaseOutcome(name, "crashed", one_line(f"{type(error).__name__}: {error}"))


def run_cases(suite: Suite, names: Sequence[str], jobs: int) -> Iterator[CaseOutcome]:
    """Run cases in child processes, and yield their outcomes in order of completion."""
    per_child = max(1, min(_CASES_PER_CHILD, len(names) // jobs))
    limits = {"jobs": jobs, "seconds": TIMEOUT_SECONDS, "items_per_child": per_child}
    for ended in run_supervised(lambda name: run_case(suite, name), names, **limits):
        if ended.death is not None:
            yield CaseOutcome(ended.item, "crashed", one_line(ended.death.strip().rpartition("\n")[2]))
        else:
            assert isinstance(ended.result, CaseOutcome)
            yield ended.result


def call_in_child(function: Callable[[], T]) -> T:
    """Return the result of a function that a child process calls.

    Libraries that start threads do not work in forked processes: only children may import them.
    """
    (ended,) = run_supervised(lambda _: function(), [None], seconds=TIMEOUT_SECONDS)
    if ended.death is not None:
        raise RuntimeError(ended.death)
    return cast(T, ended.result)


def select_cases(names: Sequence[str], pattern: str = "", limit: int | None = None) -> list[str]:
    """Return the names that a regular expression matches anywhere, or up to `limit` of them at equal distances."""
    matched = [name for name in names if re.search(pattern, name)]
    if limit is None or limit >= len(matched):
        return matched
    return [matched[k * len(matched) // limit] for k in range(limit)]


# What differs between equal problems: names of nodes and tensors, lines, files, and the advice after a line.
_SPECIFIC = re.compile(
    r"node '[^']*' |(?<=^input) '[^']*'|(?<=^output) '[^']*'| \(line [\d, ]+\)|^\S+:\d+: |^\w+: (?=dlc has)|: \S+\.py:\d+.*"
)


def general_reason(problem: str) -> str:
    """Remove what is specific to a case from a problem, so that equal reasons are grouped."""
    return _SPECIFIC.sub("", one_line(problem))


def one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_REASON_CHARACTERS]

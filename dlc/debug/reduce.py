"""The smallest part of a program that still goes wrong: fewer ops, then smaller sizes.

Ops are taken away in halves, quarters and so on, as in Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing
Input (2002); what a kept op reads of one that went is an input, with the value that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from time import monotonic

from dlc.compiler import Program
from dlc.debug.cut_out import Case, cut_out, ops_of, resized, sizes_of
from dlc.debug.outcome import Outcome
from dlc.dialects.dl.base import Array
from dlc.errors import DlcError
from dlc.instrument.capture import Evaluator
from dlc.instrument.report import Doing, Progress
from dlc.ir import Operation


def reduce(
    program: Program,
    arrays: Sequence[Array],
    outcome: Outcome,
    *,
    fine: str = "nothing is wrong with it",
    seconds: float = 120,
    progress: Progress | None = None,
) -> tuple[Case, str]:
    """The smallest case found within the time that goes wrong as the program does, and how that is.

    The same program gives the same case, unless time runs out. Raises DlcError when nothing is wrong with the program, which is
    `fine` in words.
    """
    case = Case(program, tuple(arrays))
    wrong = outcome(program, arrays)
    if not wrong:
        raise DlcError(f"{program.name}: there is nothing to reduce: {fine}")
    return _Reducer(outcome, wrong, monotonic() + seconds, progress).run(case), wrong


class _Reducer:
    def __init__(self, outcome: Outcome, wrong: str, end: float, progress: Progress | None) -> None:
        self.outcome, self.wrong, self.end, self.progress = outcome, wrong, end, progress

    def run(self, case: Case) -> Case:
        values = Evaluator(case.arrays).trace(case.program.module, case.program.weights).values
        ops = ops_of(case.program)
        kept = self.fewest(ops, lambda part: self.goes_wrong(cut_out(case, part, values), f"{len(part)} of {len(ops)} ops"))
        smaller = cut_out(case, kept, values)
        # Not even all ops by themselves need to go wrong: an output that is an input, say.
        return self.smallest(smaller if self.goes_wrong(smaller, "the part") else case)

    def goes_wrong(self, case: Case, what: str) -> bool:
        if self.progress is not None:
            self.progress(Doing("reducing", what))
        return self.outcome(case.program, case.arrays) == self.wrong

    def fewest(self, ops: Sequence[Operation], goes_wrong: Callable[[Sequence[Operation]], bool]) -> Sequence[Operation]:
        """A part of `ops` that goes wrong, of which nothing more can be taken away."""
        parts = 2
        while len(ops) > 1 and monotonic() < self.end:
            bounds = [len(ops) * k // parts for k in range(parts + 1)]
            pieces = list(pairwise(bounds))
            # Few ops first: a single part, then all but one.
            candidates = [ops[a:b] for a, b in pieces]
            candidates += [[*ops[:a], *ops[b:]] for a, b in pieces] if parts > 2 else []
            found = next((c for c in candidates if monotonic() < self.end and goes_wrong(c)), None)
            if found is not None:
                parts = max(parts - 1, 2) if len(found) > len(ops) // parts + 1 else 2
                ops = found
            elif parts == len(ops):
                break
            else:
                parts = min(2 * parts, len(ops))
        return ops

    def smallest(self, case: Case) -> Case:
        """The case with each size as small as it goes."""
        for old in sizes_of(case):
            for new in (1, 2, 3, *(old // k for k in (8, 4, 2))):
                if new >= old or monotonic() > self.end:
                    continue
                smaller = resized(case, old, new)
                if smaller is not None and self.goes_wrong(smaller, f"size {new} for {old}"):
                    case = smaller
                    break
        return case

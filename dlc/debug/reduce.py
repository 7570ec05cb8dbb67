"""Reduce a program to the smallest part that still fails (delta debugging): fewer ops, then smaller sizes.

Ops are removed in halves, quarters and so on, as in Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input
(2002). The value of a removed op that a remaining op reads becomes an input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from time import monotonic

from dlc.compiler import Program
from dlc.debug.outcome import Outcome
from dlc.debug.subprogram import ProgramCase, extract_subprogram, ops_of, resize_program, sizes_of
from dlc.dialects.dl.base import Array
from dlc.errors import DlcError
from dlc.instrument.capture import Evaluator
from dlc.instrument.report import Progress, ProgressEvent
from dlc.ir import Operation


def reduce(
    program: Program,
    arrays: Sequence[Array],
    outcome: Outcome,
    *,
    success: str = "nothing is wrong with it",
    seconds: float = 120,
    progress: Progress | None = None,
) -> tuple[ProgramCase, str]:
    """Return the smallest case found within the time limit that fails in the same way, and the description of the failure.

    The result is deterministic unless time runs out. Raises DlcError if the program does not fail; `success` describes that
    case in the message.
    """
    case = ProgramCase(program, tuple(arrays))
    failure = outcome(program, arrays)
    if not failure:
        raise DlcError(f"{program.name}: there is nothing to reduce: {success}")
    return _Reducer(outcome, failure, monotonic() + seconds, progress).run(case), failure


class _Reducer:
    """Delta debugging of one program."""

    def __init__(self, outcome: Outcome, failure: str, end_time: float, progress: Progress | None) -> None:
        self.outcome, self.failure, self.end_time, self.progress = outcome, failure, end_time, progress

    def run(self, case: ProgramCase) -> ProgramCase:
        values = Evaluator(case.arrays).trace(case.program.module, case.program.weights).values
        ops = ops_of(case.program)
        failing_ops = self.minimize_ops(
            ops, lambda subset: self.fails(extract_subprogram(case, subset, values), f"{len(subset)} of {len(ops)} ops")
        )
        smaller = extract_subprogram(case, failing_ops, values)
        # The extracted part need not fail even if it has all ops, for example if an output of the program is an input.
        return self.minimize_sizes(smaller if self.fails(smaller, "the extracted program") else case)

    def fails(self, case: ProgramCase, description: str) -> bool:
        """Return whether a case fails in the same way as the original program."""
        if self.progress is not None:
            self.progress(ProgressEvent("reducing", description))
        return self.outcome(case.program, case.arrays) == self.failure

    def minimize_ops(self, ops: Sequence[Operation], fails: Callable[[Sequence[Operation]], bool]) -> Sequence[Operation]:
        """Return a subset of `ops` that fails and from which no further chunk can be removed."""
        chunk_count = 2
        while len(ops) > 1 and monotonic() < self.end_time:
            bounds = [len(ops) * k // chunk_count for k in range(chunk_count + 1)]
            chunks = list(pairwise(bounds))
            # Try small subsets first: a single chunk, then all chunks but one.
            candidates = [ops[a:b] for a, b in chunks]
            candidates += [[*ops[:a], *ops[b:]] for a, b in chunks] if chunk_count > 2 else []
            failing_case = next((c for c in candidates if monotonic() < self.end_time and fails(c)), None)
            if failing_case is not None:
                chunk_count = max(chunk_count - 1, 2) if len(failing_case) > len(ops) // chunk_count + 1 else 2
                ops = failing_case
            elif chunk_count == len(ops):
                break
            else:
                chunk_count = min(2 * chunk_count, len(ops))
        return ops

    def minimize_sizes(self, case: ProgramCase) -> ProgramCase:
        """Return the case with each size reduced as far as possible."""
        for old_size in sizes_of(case):
            for new_size in (1, 2, 3, *(old_size // k for k in (8, 4, 2))):
                if new_size >= old_size or monotonic() > self.end_time:
                    continue
                smaller = resize_program(case, old_size, new_size)
                if smaller is not None and self.fails(smaller, f"size {new_size} for {old_size}"):
                    case = smaller
                    break
        return case

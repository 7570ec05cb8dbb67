"""The ops of a kernel that an instruction for a whole pattern replaces."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from dlc.ir import Operation, SSAValue


class PatternMatch(NamedTuple):
    """The ops that define a pattern without its last one, and the operands of the instruction that replaces it."""

    inner_ops: Collection[Operation]
    operands: Collection[SSAValue]


def unused_ops(matches: Mapping[Operation, PatternMatch]) -> set[Operation]:
    """Return the ops that only define matched patterns, by the last op of each; several patterns may share ops."""
    unused = {op for match in matches.values() for op in match.inner_ops}
    unused.difference_update(x.owner for match in matches.values() for x in match.operands if isinstance(x.owner, Operation))
    pending = list(unused)
    while pending:
        op = pending.pop()
        if op in unused and not all(use.operation in unused or use.operation in matches for use in op.results[0].uses):
            unused.discard(op)
            pending += [x.owner for x in op.operands if isinstance(x.owner, Operation)]
    return unused

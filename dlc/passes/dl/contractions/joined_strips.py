"""Results that are made strip by strip and joined: what is elementwise behind them goes with each strip."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import rank_of, shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.ir import Operation, SSAValue
from dlc.passes.dl.contractions.strips import strip_of
from dlc.passes.dl.rewriting import defining


class JoinedStrips:
    """The results of a block's convolutions that were joined from strips.

    `awaited`: the convolutions all of whose strips an op waits for, of all blocks, since inner ones read what is around them.
    """

    def __init__(self, awaited: dict[Operation, frozenset[ConvOp]]) -> None:
        self._awaited = awaited
        # Results of strips, and the convolution that they come from.
        self._joins: dict[SSAValue, ConvOp] = {}

    def join(self, b: Build, parts: Sequence[SSAValue], axis: int, origin: ConvOp) -> SSAValue:
        joined = b(ConcatOp, *parts, axis=axis)
        self._joins[joined] = origin
        return joined

    def passed(self, op: Operation) -> None:
        """Says that a walk in program order has come to an op: what it waits for is known before what it reads changes."""
        if self._joins:
            self._awaited_by(op)

    def followed(self, op: Elementwise) -> Sequence[SSAValue] | None:
        """f(concat(x, …), b) = concat(f(x, b), …), so that f joins each part's kernel; not where b waits for all parts."""
        shape = shape_of(op.results[0])
        whole = next((v for v in op.operands if v in self._joins and shape_of(v) == shape and self._is_apart(op, v)), None)
        joined = None if whole is None else defining(whole, ConcatOp)
        if whole is None or joined is None:
            return None
        b, axis, start, parts = Build(op), joined.joined_axis, 0, list[SSAValue]()
        for part in joined.values:
            size = int(shape_of(part)[axis])
            operands = [part if v is whole else _beside(b, v, axis - len(shape), start, size) for v in op.operands]
            parts.append(b(type(op), *operands, **op.properties))
            start += size
        return [self.join(b, parts, axis, self._joins[whole])]

    def _is_apart(self, op: Elementwise, whole: SSAValue) -> bool:
        """Whether what an op reads beside strips of a convolution is there when each of them is."""
        origin = self._joins[whole]
        others = [v.owner for v in op.operands if self._joins.get(v) is not origin]
        return not any(isinstance(other, Operation) and origin in self._awaited_by(other) for other in others)

    def _awaited_by(self, op: Operation) -> frozenset[ConvOp]:
        """The convolutions all of whose strips an op waits for."""
        pending = [op]
        while op not in self._awaited:
            last = pending[-1]
            values = {v for inner in last.walk() for v in inner.operands}
            owners = [v.owner for v in values if isinstance(v.owner, Operation)]
            unknown = [owner for owner in owners if owner not in self._awaited]
            if unknown:
                pending += unknown
                continue
            before = (self._awaited[owner] for owner in owners)
            joined = (self._joins[v] for v in values if v in self._joins)
            self._awaited[last] = frozenset[ConvOp]().union(*before, joined)
            pending.pop()
        return self._awaited[op]


def _beside(b: Build, value: SSAValue, axis: int, start: int, size: int) -> SSAValue:
    """What of an operand meets a part of another one, of an axis counted from the last; all of it if it is broadcast."""
    axis += rank_of(value)
    return value if axis < 0 or shape_of(value)[axis] == 1 else strip_of(b, value, axis, start, size)

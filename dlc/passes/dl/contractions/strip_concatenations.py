"""Sink elementwise ops through concatenations of strips, so that they fuse with each strip's kernel."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.ir import Operation, SSAValue
from dlc.passes.dl.contractions.strips import slice_strip
from dlc.passes.dl.rewriting import defining_op


class StripConcatenations:
    """The concatenations of strips that convolutions of a block were split into.

    `concat_dependencies` maps each op to the convolutions whose complete concatenation it depends on. It contains the ops of
    all blocks, since inner blocks capture outer values.
    """

    def __init__(self, concat_dependencies: dict[Operation, frozenset[ConvOp]]) -> None:
        self._dependencies = concat_dependencies
        # Maps each concatenated result to the convolution it replaces.
        self._origins: dict[SSAValue, ConvOp] = {}

    def join(self, build: DlBuilder, strips: Sequence[SSAValue], axis: int, origin: ConvOp) -> SSAValue:
        """Concatenate the strips of a convolution."""
        concat = build(ConcatOp, *strips, axis=axis)
        self._origins[concat] = origin
        return concat

    def record_dependencies(self, op: Operation) -> None:
        """Record an op's dependencies when the forward walk reaches it, before its operands are rewritten."""
        if self._origins:
            self._find_dependencies(op)

    def sink_elementwise(self, op: Elementwise) -> Sequence[SSAValue] | None:
        """Rewrite f(concat(x, …), b) as concat(f(x, b), …), so that f fuses with each strip.

        Returns None if b depends on all strips.
        """
        shape = shape_of(op.results[0])
        concatenation = next(
            (v for v in op.operands if v in self._origins and shape_of(v) == shape and self._is_independent(op, v)), None
        )
        concat = None if concatenation is None else defining_op(concatenation, ConcatOp)
        if concatenation is None or concat is None:
            return None
        build, axis, start, strips = DlBuilder(op), concat.concat_axis, 0, list[SSAValue]()
        for strip in concat.values:
            size = int(shape_of(strip)[axis])
            operands = [
                strip if v is concatenation else _matching_strip(build, v, axis - len(shape), start, size) for v in op.operands
            ]
            strips.append(build(type(op), *operands, **op.properties))
            start += size
        return [self.join(build, strips, axis, self._origins[concatenation])]

    def _is_independent(self, op: Elementwise, concatenation: SSAValue) -> bool:
        """Return whether the op's other operands do not depend on all strips of the same convolution."""
        origin = self._origins[concatenation]
        other_producers = [v.owner for v in op.operands if self._origins.get(v) is not origin]
        return not any(isinstance(other, Operation) and origin in self._find_dependencies(other) for other in other_producers)

    def _find_dependencies(self, op: Operation) -> frozenset[ConvOp]:
        """Return the convolutions whose complete concatenation an op depends on."""
        pending = [op]
        while op not in self._dependencies:
            last = pending[-1]
            values = {v for inner in last.walk() for v in inner.operands}
            owners = [v.owner for v in values if isinstance(v.owner, Operation)]
            unknown = [owner for owner in owners if owner not in self._dependencies]
            if unknown:
                pending += unknown
                continue
            inherited = (self._dependencies[owner] for owner in owners)
            concat = (self._origins[v] for v in values if v in self._origins)
            self._dependencies[last] = frozenset[ConvOp]().union(*inherited, concat)
            pending.pop()
        return self._dependencies[op]


def _matching_strip(build: DlBuilder, value: SSAValue, axis: int, start: int, size: int) -> SSAValue:
    """Slice an operand like one strip, along an axis counted from the last; return it whole where it broadcasts."""
    axis += rank_of(value)
    return value if axis < 0 or shape_of(value)[axis] == 1 else slice_strip(build, value, axis, start, size)

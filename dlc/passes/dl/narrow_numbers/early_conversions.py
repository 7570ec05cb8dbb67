"""Values as another element type: converted where their numbers are made, and moved as they are."""

from __future__ import annotations

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.interfaces import Movement
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.ir import Attribute, Block, Operation, SSAValue
from dlc.passes.dl.rewriting import splat


class EarlyConversions:
    """The values of a program as numbers of one other type.

        %p = dl.pad %x, %0;  dl.cast %p    →    dl.pad (dl.cast %x), %0

    Each number is converted once, by the kernel that makes it, however many read it from whichever place.
    """

    def __init__(self, to: Attribute) -> None:
        self.to = to
        # Values, and the same as another type.
        self.found: dict[SSAValue, SSAValue] = {}

    def converted(self, x: SSAValue) -> SSAValue:
        """`x` as another type, from where it is made or moved on."""
        pending = [x]
        while pending:
            value = pending[-1]
            made, element = value.owner, element_type_of(value)
            if value not in self.found and isinstance(made, DlOp) and self.passes(made):
                wanted = [v for v in made.operands if element_type_of(v) == element]
                if missing := [v for v in wanted if v not in self.found]:
                    pending += missing
                    continue
                operands = (self.found[v] if v in wanted else v for v in made.operands)
                self.found[value] = Build(made)(type(made), *operands, **made.properties)
            elif value not in self.found:
                self.found[value] = self.behind(value)
            pending.pop()
        return self.found[x]

    def passes(self, op: DlOp) -> bool:
        """Whether it is all the same if numbers are converted before an op or behind it."""
        return moves(op)

    def behind(self, x: SSAValue) -> SSAValue:
        """`x` converted right behind the op that makes it."""
        b, known = following(x), splat(x)
        if known is not None and not rank_of(x):
            return b.scalar(known, like=tensor_type((), self.to))
        return b(CastOp, x, to=self.to)


def following(x: SSAValue) -> Build:
    """Builds right behind the op that makes a value, or where the block begins that has it as an argument."""
    made = x.owner
    place = made.first_op if isinstance(made, Block) else made.next_op
    assert isinstance(place, Operation)
    return Build(place)


def moves(op: Operation) -> bool:
    """Whether an op has its operand's numbers, and others that are known, in other places."""
    return isinstance(op, Movement | ReshapeOp) or (isinstance(op, PadOp) and op.mode == "constant")

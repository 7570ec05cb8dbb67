"""Values as another element type: converted where their numbers are made, and moved as they are."""

from __future__ import annotations

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.interfaces import Movement
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.ir import Attribute, Block, Operation, SSAValue
from dlc.passes.dl.rewriting import splat


class EarlyConversions:
    """The values of a program as numbers of one other type.

        %p = dl.pad %x, %0;  dl.cast %p    →    dl.pad (dl.cast %x), %0

    Each number is converted once, by the kernel that makes it, however many read it from whichever place.
    """

    def __init__(self, to: Attribute, constant: WeightExpressions) -> None:
        self.to = to
        self.constant = constant
        # Values of which there is one already.
        self.found: dict[SSAValue, SSAValue] = {}

    def converted(self, b: Build, x: SSAValue) -> SSAValue:
        """`x` as another type, for a reader that `b` stands before."""
        made = x.owner
        if isinstance(made, DlOp) and self.passes(made):
            at, element = Build(made), element_type_of(x)
            operands = (self.converted(at, v) if element_type_of(v) == element else v for v in made.operands)
            return at(type(made), *operands, **made.properties)
        if (known := splat(x)) is not None and not rank_of(x):
            return b.scalar(known, like=tensor_type((), self.to))
        if x in self.constant:
            return b(CastOp, x, to=self.to)
        if x not in self.found:
            self.found[x] = self.behind(x)
        return self.found[x]

    def passes(self, op: DlOp) -> bool:
        """Whether it is all the same if numbers are converted before an op or behind it."""
        return moves(op)

    def behind(self, x: SSAValue) -> SSAValue:
        """`x` converted right behind the op that makes it."""
        return following(x)(CastOp, x, to=self.to)


def following(x: SSAValue) -> Build:
    """Builds right behind the op that makes a value, or where the block begins that has it as an argument."""
    made = x.owner
    place = made.first_op if isinstance(made, Block) else made.next_op
    assert isinstance(place, Operation)
    return Build(place)


def moves(op: Operation) -> bool:
    """Whether an op has its operand's numbers, and others that are known, in other places."""
    return isinstance(op, Movement | ReshapeOp) or (isinstance(op, PadOp) and op.mode == "constant")

"""Computes early what is made of values that nothing else reads: the result is kept instead of them."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.interfaces import Elementwise
from dlc.ir import Block, Context, ModuleOp, ModulePass, Operation, SSAValue
from dlc.passes.dl.rewriting import program_blocks, users

# Longer formulas do not share a kernel.
_MOST = 64


@dataclass(frozen=True)
class ComputeEarlyPass(ModulePass):
    r"""`compute-early`: elementwise ops for which alone a value of others would be kept go where that is made.

        %e = dl.erf %x;  %y = dl.mul %x, %e                      %e = dl.erf %x;  %d = dl.add %e, %p;  %y = dl.mul %x, %e
        …                                                    →   …
        %d = dl.add %e, %p;  %g = dl.mul %ct, %d                 %g = dl.mul %ct, %d

    The kernel that makes the value makes the result besides, and stores that in its place. So a derivative is computed with
    the function, of which it needs parts, and not in the backward pass from what would have to be kept and read there.
    """

    name = "compute-early"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            _Mover(block).run()


class _Mover:
    def __init__(self, block: Block) -> None:
        self.block = block
        self.locate()
        # Moving ops changes none of it.
        self.known: dict[SSAValue, set[Operation]] = {}

    def readers(self, value: SSAValue) -> set[Operation]:
        if value not in self.known:
            self.known[value] = users(value)
        return self.known[value]

    def run(self) -> None:
        moved: set[Operation] = set()
        # The last op of a formula first, which brings the others.
        for op in reversed(list(self.block.ops)):
            if isinstance(op, Elementwise) and shape_of(op.results[0]) and op not in moved:
                moved |= self.move(op)

    def move(self, last: Operation) -> set[Operation]:
        """Moves a formula that ends in an op behind the last value that it reads, if that is worth it: the ops moved."""
        formula = self.formula(last)
        operands = (v for op in formula for v in op.operands)
        read = {v for v in operands if v.owner not in formula and not isinstance(v.owner, ConstantOp)}
        makers = [v.owner for v in read if isinstance(v.owner, Operation) and v.owner in self.position]
        if not makers:
            return set()
        place = max(makers, key=lambda op: self.position[op])
        if any(self.position[op] < self.position[place] for op in formula):
            return set()
        if self.stand_together(place, {last}) or not any(self.is_kept_for(v, formula, place) for v in read):
            return set()
        start, constants = self.position[place], set[Operation]()
        for op in sorted(formula, key=lambda op: self.position[op]):
            for constant in (v.owner for v in op.operands if isinstance(v.owner, ConstantOp)):
                # One of a block outside stands before all of this one.
                if self.position.get(constant, start) > start and constant not in constants:
                    constants.add(constant)
                    place = self.put(constant, place)
            place = self.put(op, place)
        self.locate()
        return formula

    def locate(self) -> None:
        """Finds where each op of the block stands, and how many have stood until then that are not elementwise."""
        self.position: dict[Operation, int] = {}
        self.others: dict[Operation, int] = {}
        count = 0
        for k, op in enumerate(self.block.ops):
            count += not isinstance(op, Elementwise | ConstantOp)
            self.position[op], self.others[op] = k, count

    def stand_together(self, first: Operation, ops: set[Operation]) -> bool:
        """Whether nothing but elementwise ops stands between an op and others after it."""
        start, others = self.position[first], self.others[first]
        return all(self.others.get(op) == others and self.position[op] >= start for op in ops)

    def is_kept_for(self, value: SSAValue, formula: set[Operation], place: Operation) -> bool:
        """Whether a value, made by elementwise ops and as large as what a formula makes, is kept for the formula alone.

        Its other readers, and the place, stand right behind what makes it.
        """
        maker, like = value.owner, next(iter(formula)).results[0]
        if not isinstance(maker, Elementwise) or maker not in self.position or shape_of(value) != shape_of(like):
            return False
        return self.stand_together(maker, (self.readers(value) | {place}) - formula)

    def put(self, op: Operation, place: Operation) -> Operation:
        op.detach()
        self.block.insert_op_after(op, place)
        return op

    def formula(self, last: Operation) -> set[Operation]:
        """An elementwise op, with those of its shape that make values for it alone."""
        shape, found, pending = shape_of(last.results[0]), {last}, [last]
        while pending and len(found) < _MOST:
            for value in pending.pop().operands:
                op = value.owner
                if (
                    isinstance(op, Elementwise)
                    and op not in found
                    and self.readers(value) <= found
                    and shape_of(value) == shape
                ):
                    found.add(op)
                    pending.append(op)
        return found

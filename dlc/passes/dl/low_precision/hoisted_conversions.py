"""Hoist element type conversions to the producers of values."""

from __future__ import annotations

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import DataMovement
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.ir import Attribute, Block, Operation, SSAValue
from dlc.passes.dl.rewriting import splat


class HoistedConversions:
    """Converts values of a program to one other element type, at their producers.

        %p = dl.pad %x, %0;  dl.cast %p    →    dl.pad (dl.cast %x), %0

    Each element is converted once, by the kernel that computes it, for any number of users, also after data-movement ops.
    """

    def __init__(self, to: Attribute) -> None:
        self.to = to
        # Maps values to their converted counterparts.
        self.converted_values: dict[SSAValue, SSAValue] = {}

    def convert(self, x: SSAValue) -> SSAValue:
        """Return `x` with the other element type, converted at its producer, before data-movement ops."""
        pending = [x]
        while pending:
            value = pending[-1]
            producer, element = value.owner, element_type_of(value)
            if value not in self.converted_values and isinstance(producer, DlOp) and self.commutes(producer):
                operands_to_convert = [v for v in producer.operands if element_type_of(v) == element]
                if missing := [v for v in operands_to_convert if v not in self.converted_values]:
                    pending += missing
                    continue
                operands = (self.converted_values[v] if v in operands_to_convert else v for v in producer.operands)
                self.converted_values[value] = DlBuilder(producer)(type(producer), *operands, **producer.properties)
            elif value not in self.converted_values:
                self.converted_values[value] = self.cast_after(value)
            pending.pop()
        return self.converted_values[x]

    def commutes(self, op: DlOp) -> bool:
        """Return whether a cast commutes with an op."""
        return is_data_movement(op)

    def cast_after(self, x: SSAValue) -> SSAValue:
        """Return `x` cast right after its producer."""
        build, splat_value = builder_after(x), splat(x)
        if splat_value is not None and not rank_of(x):
            return build.scalar(splat_value, like=tensor_type((), self.to))
        return build(CastOp, x, to=self.to)


def builder_after(x: SSAValue) -> DlBuilder:
    """Return a builder right after the producer of a value; for a block argument, at the start of the block."""
    producer = x.owner
    anchor = producer.first_op if isinstance(producer, Block) else producer.next_op
    assert isinstance(anchor, Operation)
    return DlBuilder(anchor)


def is_data_movement(op: Operation) -> bool:
    """Return whether an op only moves the elements of its operand, and adds constant elements (padding)."""
    return isinstance(op, DataMovement | ReshapeOp) or (isinstance(op, PadOp) and op.mode == "constant")

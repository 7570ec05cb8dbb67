"""Control flow: what runs a number of times that sizes decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from dlc.dialects.dl.base import (
    Array,
    DlOp,
    Tensor,
    attribute,
    element_type_of,
    number,
    shape_of,
    sizes,
    tensor_of,
    tensor_type,
)
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.program import YieldOp
from dlc.dims import Size
from dlc.ir import (
    Block,
    IntegerAttr,
    IRDLOperation,
    IsolatedFromAbove,
    Operation,
    Parser,
    Printer,
    Pure,
    Region,
    SSAValue,
    TensorType,
    VerifyException,
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)


@irdl_op_definition
class ScanOp(IRDLOperation):
    """Runs its body for one element of each sequence after the other and hands states on: a recurrence.

        %last, %all = dl.scan %first, %xs, %w {states = 1, sequences = 1, length = array<i64: 5>}
            : (tensor<4xf32>, tensor<5x4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<5x4xf32>) {
        ^bb0(%state: tensor<4xf32>, %x: tensor<4xf32>, %v: tensor<4xf32>):
          %p = dl.mul %state, %v : …
          %next = dl.add %p, %x : …
          dl.yield %next, %next : …
        }

    Operands are the first states, the sequences, whose elements lie along axis 0, and what every step reads as it is. The
    body yields the next states, then one element of each sequence that the steps make; results are the last states and
    these sequences.
    (C1) each sequence has `length` elements; (C2) the body's arguments have the types of the states, of the sequences'
    elements and of the other operands; (C3) it yields states of the states' types; (C4) it consists of `dl` ops that need
    neither the weights store nor the host.
    """

    name = "dl.scan"
    states = prop_def(IntegerAttr)
    sequences = prop_def(IntegerAttr)
    length = prop_def()
    arguments = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), Pure())

    @classmethod
    def of(cls, arguments: Sequence[SSAValue], body: Block, states: int, sequences: int, length: Size) -> Self:
        """The op over these operands, with the result types that follow from its body."""
        properties = {"states": attribute(states), "sequences": attribute(sequences), "length": attribute((length,))}
        yielded = body.last_op
        assert isinstance(yielded, YieldOp)
        results = result_types(yielded, states, length)
        return cls.create(operands=arguments, result_types=results, properties=properties, regions=[Region(body)])

    @property
    def state_count(self) -> int:
        return int(number(self.states))

    @property
    def sequence_count(self) -> int:
        return int(number(self.sequences))

    @property
    def steps(self) -> Size:
        """How often the body runs."""
        return sizes(self.length)[0]

    @property
    def yielded(self) -> YieldOp:
        last = self.body.block.last_op
        assert isinstance(last, YieldOp)
        return last

    def argument_types(self) -> list[Tensor]:
        """What the body's arguments have to be."""
        first, last = self.state_count, self.state_count + self.sequence_count
        elements = [tensor_type(shape_of(v)[1:], element_type_of(v)) for v in self.arguments[first:last]]
        return [*map(tensor_of, self.arguments[:first]), *elements, *map(tensor_of, self.arguments[last:])]

    def verify_(self) -> None:
        first, last = self.state_count, self.state_count + self.sequence_count
        if min(first, self.sequence_count) < 0 or last > len(self.arguments) or len(sizes(self.length)) != 1:
            raise VerifyException("dl.scan: its operands are not as many as it has states and sequences, or it has no length")
        if any(shape_of(v)[:1] != (self.steps,) for v in self.arguments[first:last]):
            raise VerifyException(f"dl.scan: a sequence has not {self.steps} elements (C1)")
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException("dl.scan: its body must end in dl.yield")
        if [a.type for a in self.body.block.args] != self.argument_types():
            raise VerifyException(f"dl.scan: its body takes {list(map(str, self.argument_types()))} (C2)")
        if [v.type for v in self.yielded.values[:first]] != [v.type for v in self.arguments[:first]]:
            raise VerifyException("dl.scan: the next states do not have the states' types (C3)")
        if [r.type for r in self.results] != result_types(self.yielded, first, self.steps):
            raise VerifyException("dl.scan: its results are not the states and the sequences that its body yields")
        for op in self.body.block.ops:
            if not isinstance(op, DlOp | ScanOp | YieldOp) or isinstance(op, WeightOp | DataDependent):
                raise VerifyException(f"dl.scan: {op.name} in its body (C4)")

    def evaluate(self, *operands: Array) -> tuple[Array, ...]:
        """The results, step by step in NumPy."""
        first, last = self.state_count, self.state_count + self.sequence_count
        states, made = list(operands[:first]), [list[Array]() for _ in self.results[first:]]
        for step in range(int(self.steps)):
            elements = [sequence[step] for sequence in operands[first:last]]
            known: dict[SSAValue, Array] = dict(zip(self.body.block.args, (*states, *elements, *operands[last:]), strict=True))
            for op in self.body.block.ops:
                if isinstance(op, DlOp | ScanOp):
                    known.update(zip(op.results, op.evaluate(*(known[v] for v in op.operands)), strict=True))
            states = [known[v] for v in self.yielded.values[:first]]
            for sequence, value in zip(made, self.yielded.values[first:], strict=True):
                sequence.append(known[value])
        stacked = (
            np.stack(sequence) if sequence else np.zeros([int(s) for s in shape_of(r)], numpy_dtype(element_type_of(r)))
            for sequence, r in zip(made, self.results[first:], strict=True)
        )
        return (*states, *stacked)

    def step(self, values: Sequence[SSAValue], before: Operation) -> list[SSAValue]:
        """Puts a copy of the body, for these arguments, before an op; what it yields."""
        mapper: dict[SSAValue, SSAValue] = dict(zip(self.body.block.args, values, strict=True))
        block = before.parent
        assert block is not None
        for op in self.body.block.ops:
            if op is not self.yielded:
                block.insert_op_before(op.clone(mapper), before)
        return [mapper[v] for v in self.yielded.values]

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_string(" ")
        printer.print_attr_dict(self.properties)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" : ")
        printer.print_function_type(self.operand_types, self.result_types)
        printer.print_string(" ")
        printer.print_region(self.body)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        unresolved = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        properties = parser.parse_optional_attr_dict()
        attributes = parser.parse_optional_attr_dict_with_keyword()
        parser.parse_punctuation(":")
        position = parser.pos
        function_type = parser.parse_function_type()
        return cls.create(
            operands=parser.resolve_operands(unresolved or [], function_type.inputs.data, position),
            result_types=function_type.outputs.data,
            properties=properties,
            attributes=attributes.data if attributes else {},
            regions=[parser.parse_region()],
        )


def result_types(yielded: YieldOp, states: int, length: Size) -> list[Tensor]:
    """The types of the last states, and of the sequences of what else the body yields."""
    made = [tensor_type((length, *shape_of(v)), element_type_of(v)) for v in yielded.values[states:]]
    return [*map(tensor_of, yielded.values[:states]), *made]


def closed(body: Block) -> list[SSAValue]:
    """Makes arguments of the values from outside that the ops of a body read; these values, in order."""
    inside = {*body.args, *(r for op in body.ops for r in op.results)}
    arguments: dict[SSAValue, SSAValue] = {}
    for op in body.ops:
        for k, value in enumerate(op.operands):
            if value in inside:
                continue
            if value not in arguments:
                arguments[value] = body.insert_arg(value.type, len(body.args))
            op.operands[k] = arguments[value]
    return list(arguments)

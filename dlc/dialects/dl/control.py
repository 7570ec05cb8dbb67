"""Control flow: what runs a number of times that sizes decide, or data."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    parse_op,
    print_op,
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
    Attribute,
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
    i1,
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)


class Loop(IRDLOperation, ABC):
    """An op that runs its body again and again: states first among its operands, then what differs; one syntax.

    Its body consists of `dl` ops that do not read the weights store: it is closed, so that it can be moved and repeated.
    """

    @property
    def block(self) -> Block:
        return self.regions[0].block

    @property
    def yielded(self) -> Sequence[SSAValue]:
        last = self.block.last_op
        assert isinstance(last, YieldOp)
        return last.values

    def run(self, arguments: Sequence[Array]) -> list[Array]:
        """What the body yields for these arguments, by NumPy."""
        known: dict[SSAValue, Array] = dict(zip(self.block.args, arguments, strict=True))
        for op in self.block.ops:
            if isinstance(op, DlOp | Loop):
                known.update(zip(op.results, op.evaluate(*(known[v] for v in op.operands)), strict=True))
        return [known[v] for v in self.yielded]

    @abstractmethod
    def evaluate(self, *operands: Array) -> tuple[Array, ...]:
        """The results, by NumPy."""

    def require(self, arguments: Sequence[Attribute], results: Sequence[Attribute]) -> None:
        """Raises VerifyException unless the body takes, and the op gives, values of these types."""
        if not isinstance(self.block.last_op, YieldOp):
            raise VerifyException(f"{self.name}: its body must end in dl.yield")
        if [a.type for a in self.block.args] != list(arguments):
            raise VerifyException(f"{self.name}: its body takes {', '.join(map(str, arguments))}")
        if [r.type for r in self.results] != list(results):
            raise VerifyException(f"{self.name}: its results are {', '.join(map(str, results))}")
        for op in self.block.ops:
            if not isinstance(op, DlOp | Loop | YieldOp) or isinstance(op, WeightOp):
                raise VerifyException(f"{self.name}: {op.name} in its body")

    def print(self, printer: Printer) -> None:
        print_op(self, printer)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        return parse_op(cls, parser)


@irdl_op_definition
class ScanOp(Loop):
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
    (C1) each sequence has `length` elements; (C2) the body takes states, elements of the sequences and the other operands;
    (C3) it yields states of the states' types; (C4) no size in it depends on data.
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
        results = _scan_results(yielded.values, states, length)
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

    def verify_(self) -> None:
        first, last = self.state_count, self.state_count + self.sequence_count
        if min(first, self.sequence_count) < 0 or last > len(self.arguments) or len(sizes(self.length)) != 1:
            raise VerifyException("dl.scan: its operands are not as many as it has states and sequences, or it has no length")
        if any(shape_of(v)[:1] != (self.steps,) for v in self.arguments[first:last]):
            raise VerifyException(f"dl.scan: a sequence has not {self.steps} elements (C1)")
        elements = [tensor_type(shape_of(v)[1:], element_type_of(v)) for v in self.arguments[first:last]]
        states, rest = ([v.type for v in values] for values in (self.arguments[:first], self.arguments[last:]))
        self.require([*states, *elements, *rest], _scan_results(self.yielded, first, self.steps))
        if [v.type for v in self.yielded[:first]] != states:
            raise VerifyException("dl.scan: the next states do not have the states' types (C3)")
        if any(isinstance(op, DataDependent | WhileOp) for op in self.block.ops):
            raise VerifyException("dl.scan: something in its body depends on data (C4)")

    def evaluate(self, *operands: Array) -> tuple[Array, ...]:
        first, last = self.state_count, self.state_count + self.sequence_count
        states, made = list(operands[:first]), [list[Array]() for _ in self.results[first:]]
        for step in range(int(self.steps)):
            results = self.run([*states, *(sequence[step] for sequence in operands[first:last]), *operands[last:]])
            states = results[:first]
            for sequence, value in zip(made, results[first:], strict=True):
                sequence.append(value)
        stacked = (
            np.stack(sequence) if sequence else np.zeros([int(s) for s in shape_of(r)], numpy_dtype(element_type_of(r)))
            for sequence, r in zip(made, self.results[first:], strict=True)
        )
        return (*states, *stacked)

    def step(self, values: Sequence[SSAValue], before: Operation) -> list[SSAValue]:
        """Puts a copy of the body, for these arguments, before an op; what it yields."""
        mapper: dict[SSAValue, SSAValue] = dict(zip(self.block.args, values, strict=True))
        block = before.parent
        assert block is not None
        for op in self.block.ops:
            if not isinstance(op, YieldOp):
                block.insert_op_before(op.clone(mapper), before)
        return [mapper[v] for v in self.yielded]


def _scan_results(yielded: Sequence[SSAValue], states: int, length: Size) -> list[Tensor]:
    """The types of the last states, and of the sequences of what else a body yields."""
    made = [tensor_type((length, *shape_of(v)), element_type_of(v)) for v in yielded[states:]]
    return [*map(tensor_of, yielded[:states]), *made]


@irdl_op_definition
class WhileOp(Loop):
    """Runs its body while a condition holds that the body computes: a loop whose number of iterations is data.

        %last = dl.while %begin, %first, %limit {states = 1} : (tensor<i1>, tensor<4xf32>, tensor<f32>) -> (tensor<4xf32>) {
        ^bb0(%state: tensor<4xf32>, %l: tensor<f32>):
          %next = dl.add %state, %state : …
          …
          dl.yield %again, %next : tensor<i1>, tensor<4xf32>
        }

    Operands are whether it runs at all, the first states, and what every iteration reads as it is; the body yields whether
    it runs again, and the next states. Results are the last states. The host runs it, and its body is a program.
    (C1) conditions are bools without axes; (C2) the body takes states and the other operands; (C3) it yields states of the
    states' types.
    """

    name = "dl.while"
    states = prop_def(IntegerAttr)
    arguments = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), Pure())

    @classmethod
    def of(cls, arguments: Sequence[SSAValue], body: Block, states: int) -> Self:
        """The op over these operands."""
        results = [v.type for v in arguments[1 : 1 + states]]
        return cls.create(
            operands=arguments, result_types=results, properties={"states": attribute(states)}, regions=[Region(body)]
        )

    @property
    def state_count(self) -> int:
        return int(number(self.states))

    def verify_(self) -> None:
        count = self.state_count
        if not 0 <= count < len(self.arguments):
            raise VerifyException("dl.while: its operands are not as many as it has states, and a condition")
        states = [v.type for v in self.arguments[1 : 1 + count]]
        self.require([v.type for v in self.arguments[1:]], states)
        if [v.type for v in self.yielded[1:]] != states:
            raise VerifyException("dl.while: the next states do not have the states' types (C3)")
        if any(v.type != tensor_type((), i1) for v in (self.arguments[0], *self.yielded[:1])) or not self.yielded:
            raise VerifyException("dl.while: a condition that is no bool without axes (C1)")

    def evaluate(self, *operands: Array) -> tuple[Array, ...]:
        count = self.state_count
        going, states, rest = operands[0], list(operands[1 : 1 + count]), operands[1 + count :]
        while going:
            going, *states = self.run([*states, *rest])
        return tuple(states)


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

"""Control flow: what runs a number of times that sizes decide, or data, and what runs only if data says so.

Bodies are open: they read values from above as they are, weights among them. What changes from step to step is a block
argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np

from dlc.dialects.dl.base import (
    Array,
    PlainOp,
    Tensor,
    attribute,
    element_type_of,
    flag,
    number,
    shape_of,
    sizes,
    tensor_of,
    tensor_type,
)
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.program import YieldOp
from dlc.dims import Size
from dlc.errors import DlcError
from dlc.ir import (
    ArrayAttr,
    Attribute,
    Block,
    BoolAttr,
    IntegerAttr,
    IRDLOperation,
    IsTerminator,
    Operation,
    Pure,
    Region,
    SSAValue,
    StringAttr,
    TensorType,
    VerifyException,
    contains,
    i1,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from dlc.runtime.python_ops.control import failure, repeat, scan, shown

# Runs a block for these arguments: what it yields.
RunBlock = Callable[[Block, Sequence[Array]], Sequence[Array]]


@irdl_op_definition
class FailOp(IRDLOperation):
    """Ends a branch that cannot be computed: taking it is an error with this message.

    dl.fail "node 'conv2' (Conv): …"
    dl.fail "node 'rows': index {} is outside axis 0 of size 5" (%index : tensor<i64>)

    Numbers, i64 without axes, stand where the last `{}` of the message are.
    """

    name = "dl.fail"
    message = prop_def(StringAttr)
    numbers = var_operand_def(TensorType)
    traits = traits_def(IsTerminator())
    assembly_format = "$message (`(` $numbers^ `:` type($numbers) `)`)? attr-dict"

    def __init__(self, message: str, numbers: Sequence[SSAValue] = ()) -> None:
        super().__init__(operands=[list(numbers)], properties={"message": StringAttr(message)})


class Control(PlainOp, ABC):
    """An op with bodies of `dl` ops, which end in `dl.yield` or `dl.fail`."""

    traits = traits_def(Pure())

    @abstractmethod
    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        """The results, by NumPy; `run` runs a body. Raises DlcError where a branch that fails is taken."""

    def require_body(self, block: Block, arguments: Sequence[Attribute], yielded: Sequence[Attribute]) -> None:
        """Raises VerifyException unless a body takes, and gives, values of these types."""
        if [a.type for a in block.args] != list(arguments):
            raise VerifyException(f"{self.name}: a body takes {', '.join(map(str, arguments)) or 'nothing'}")
        match block.last_op:
            case YieldOp(values=values):
                if [v.type for v in values] != list(yielded):
                    raise VerifyException(f"{self.name}: a body yields {', '.join(map(str, yielded))}")
            case FailOp(numbers=numbers):
                if any(v.type != tensor_type((), i64) for v in numbers):
                    raise VerifyException(f"{self.name}: dl.fail with numbers that are no i64 without axes")
            case _:
                raise VerifyException(f"{self.name}: a body must end in dl.yield or dl.fail")


class OfFunction(Control, ABC):
    """A control op that is about one function, its first body."""

    @property
    def block(self) -> Block:
        """The function."""
        return self.regions[0].block

    @property
    def yielded(self) -> Sequence[SSAValue]:
        """What the function returns."""
        last = self.block.last_op
        assert isinstance(last, YieldOp)
        return last.values


class Loop(OfFunction, ABC):
    """A control op with one body, which runs again and again and hands states on."""


@irdl_op_definition
class ScanOp(Loop):
    """Runs its body for one element of each sequence after the other and hands states on: a recurrence.

        %last, %all = dl.scan %first, %xs {states = 1, length = array<i64: 5>}
            : (tensor<4xf32>, tensor<5x4xf32>) -> (tensor<4xf32>, tensor<5x4xf32>) {
        ^bb0(%state: tensor<4xf32>, %x: tensor<4xf32>):
          %p = dl.mul %state, %v : …
          %next = dl.add %p, %x : …
          dl.yield %next, %next : …
        }

    Operands are the first states, then the sequences, whose elements lie along axis 0. The body yields the next states, then
    one element of each sequence that the steps make; results are the last states and these sequences. If `reverse` is set it
    goes from the last element to the first; what a step makes has the place of the elements that it was given.
    (C1) each sequence has `length` elements; (C2) the body takes states and elements of the sequences; (C3) it yields states
    of the states' types.
    """

    name = "dl.scan"
    states = prop_def(IntegerAttr)
    length = prop_def()
    reverse = opt_prop_def(BoolAttr)
    arguments = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")

    @classmethod
    def of(cls, arguments: Sequence[SSAValue], body: Block, states: int, length: Size, reverse: bool = False) -> Self:
        """The op over these operands, with the result types that follow from its body."""
        properties = {"states": attribute(states), "length": attribute((length,))}
        if reverse:
            properties["reverse"] = attribute(True)
        yielded = body.last_op
        assert isinstance(yielded, YieldOp)
        results = _scan_results(yielded.values, states, length)
        return cls.create(operands=arguments, result_types=results, properties=properties, regions=[Region(body)])

    @property
    def state_count(self) -> int:
        return int(number(self.states))

    @property
    def steps(self) -> Size:
        """How often the body runs."""
        return sizes(self.length)[0]

    @property
    def goes_back(self) -> bool:
        """Whether the first step has the last elements."""
        return flag(self.reverse)

    def verify_(self) -> None:
        count = self.state_count
        if not 0 <= count <= min(len(self.arguments), len(self.results)) or len(sizes(self.length)) != 1:
            raise VerifyException("dl.scan: its operands and results are not as many as it has states, or it has no length")
        states, sequences = self.arguments[:count], self.arguments[count:]
        if any(shape_of(v)[:1] != (self.steps,) for v in sequences):
            raise VerifyException(f"dl.scan: a sequence has not {self.steps} elements (C1)")
        elements = [tensor_type(shape_of(v)[1:], element_type_of(v)) for v in sequences]
        made = [tensor_type(shape_of(r)[1:], element_type_of(r)) for r in self.results[count:]]
        kept = [v.type for v in states]
        self.require_body(self.block, [*kept, *elements], [*kept, *made])
        if not isinstance(self.block.last_op, YieldOp) or [r.type for r in self.results] != list(
            _scan_results(self.yielded, count, self.steps)
        ):
            raise VerifyException("dl.scan: its results are not what its body makes")

    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        def empty() -> list[Array]:
            made = self.results[self.state_count :]
            return [np.zeros([int(s) for s in shape_of(r)], numpy_dtype(element_type_of(r))) for r in made]

        def step(arguments: Sequence[Array]) -> Sequence[Array]:
            return run(self.block, arguments)

        return scan(operands, self.state_count, int(self.steps), empty, step, self.goes_back)


def _scan_results(yielded: Sequence[SSAValue], states: int, length: Size) -> list[Tensor]:
    """The types of the last states, and of the sequences of what else a body yields."""
    made = [tensor_type((length, *shape_of(v)), element_type_of(v)) for v in yielded[states:]]
    return [*map(tensor_of, yielded[:states]), *made]


@irdl_op_definition
class WhileOp(Loop):
    """Runs its body while a condition holds that the body computes: a loop whose number of iterations is data.

        %last = dl.while %begin, %first : (tensor<i1>, tensor<4xf32>) -> (tensor<4xf32>) {
        ^bb0(%state: tensor<4xf32>):
          %next = dl.add %state, %limit : …
          …
          dl.yield %again, %next : tensor<i1>, tensor<4xf32>
        }

    Operands are whether it runs at all, and the first states; the body yields whether it runs again, and the next states.
    Results are the last states.
    (C1) conditions are bools without axes; (C2) the body takes states; (C3) it yields states of the states' types.
    """

    name = "dl.while"
    condition = operand_def(TensorType)
    arguments = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")

    @classmethod
    def of(cls, condition: SSAValue, states: Sequence[SSAValue], body: Block) -> Self:
        """The op over these operands."""
        return cls.create(operands=[condition, *states], result_types=[v.type for v in states], regions=[Region(body)])

    def verify_(self) -> None:
        require_condition(self, self.condition)
        states = [v.type for v in self.arguments]
        self.require_body(self.block, states, [tensor_type((), i1), *states])
        if not isinstance(self.block.last_op, YieldOp) or [r.type for r in self.results] != states:
            raise VerifyException("dl.while: its results do not have the states' types (C3)")

    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        return repeat(operands, lambda arguments: run(self.block, arguments))


@irdl_op_definition
class IfOp(Control):
    """Runs one of two bodies.

        %y = dl.if %condition : (tensor<i1>) -> (tensor<4xf32>) {
          %a = dl.exp %x : …
          dl.yield %a : tensor<4xf32>
        } {
          dl.fail "node 'reshape_1' (Reshape): …"
        }

    The first body runs where the condition holds, the second where it does not; the results are what it yields. One without
    results is there for the error that its other body is.
    (C1) the condition is a bool without axes; (C2) bodies take nothing and yield values of the results' types.
    """

    name = "dl.if"
    condition = operand_def(TensorType)
    outputs = var_result_def(TensorType)
    then = region_def("single_block")
    otherwise = region_def("single_block")

    @classmethod
    def of(cls, condition: SSAValue, then: Block, otherwise: Block, types: Sequence[Attribute]) -> Self:
        """The op with results of these types."""
        return cls.create(operands=[condition], result_types=types, regions=[Region(then), Region(otherwise)])

    def verify_(self) -> None:
        require_condition(self, self.condition)
        for block in self.blocks:
            self.require_body(block, [], [r.type for r in self.results])

    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        (condition,) = operands
        block = self.blocks[0 if condition else 1]
        made = run(block, ())
        if isinstance(block.last_op, FailOp):
            raise DlcError(failure(block.last_op.message.data, [int(n) for n in made]))
        return made


@irdl_op_definition
class PrintOp(Control):
    """Prints its operands.

        dl.print %x {pieces = ["x is ", ".3f", ""]} : (tensor<4xf32>) -> ()

    `pieces` are texts, and between two of them how an operand is formatted. It has no results, so that nothing takes it away;
    where it stands among others is the order in which they print.
    (C1) there is a text before and behind every operand.
    """

    name = "dl.print"
    pieces = prop_def(ArrayAttr[StringAttr])
    arguments = var_operand_def(TensorType)
    traits = traits_def()

    def __init__(self, pieces: Sequence[str], arguments: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(arguments)], properties={"pieces": ArrayAttr(map(StringAttr, pieces))})

    @property
    def texts(self) -> list[str]:
        return [piece.data for piece in self.pieces]

    def verify_(self) -> None:
        if len(self.pieces) != 2 * len(self.arguments) + 1:
            raise VerifyException(f"{self.name}: {len(self.pieces)} pieces for {len(self.arguments)} operands (C1)")

    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        print(shown(self.texts, operands))
        return ()


def has_effect(op: Operation) -> bool:
    """Whether an op does something that is seen without its results: it prints, or something in its bodies does."""
    return isinstance(op, Control) and contains(op, PrintOp)


def require_condition(op: Control, condition: SSAValue) -> None:
    """Raises VerifyException for a condition that is no bool without axes."""
    if condition.type != tensor_type((), i1):
        raise VerifyException(f"{op.name}: a condition that is no bool without axes (C1)")


def captured(block: Block) -> list[SSAValue]:
    """The values from outside that the ops of a body, and of bodies in it, read; each once, in order."""
    inside: set[SSAValue] = set()
    found: dict[SSAValue, None] = {}

    def visit(block: Block) -> None:
        inside.update(block.args)
        for op in block.ops:
            for value in op.operands:
                if value not in inside:
                    found[value] = None
            for region in op.regions:
                visit(region.block)
            inside.update(op.results)

    visit(block)
    return list(found)

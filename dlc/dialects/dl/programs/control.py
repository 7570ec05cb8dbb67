"""Control flow: scan, while, if, print and failure.

Bodies capture values of the enclosing block, including weights; values that change between iterations are block arguments.
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
from dlc.runtime.python_ops.control import format_failure, format_print, scan, while_loop
from dlc.shapes.dims import Size

# (block, arguments) -> values that the block yields. Evaluates the block.
RunBlock = Callable[[Block, Sequence[Array]], Sequence[Array]]


@irdl_op_definition
class FailOp(IRDLOperation):
    """Terminates a branch with an error: taking the branch fails with this message.

    dl.fail "node 'conv2' (Conv): …"
    dl.fail "node 'rows': index {} is outside axis 0 of size 5" (%index : tensor<i64>)

    The operands, rank-0 i64 values, replace the last `{}` of the message.
    """

    name = "dl.fail"
    message = prop_def(StringAttr)
    message_values = var_operand_def(TensorType)
    traits = traits_def(IsTerminator())
    assembly_format = "$message (`(` $message_values^ `:` type($message_values) `)`)? attr-dict"

    def __init__(self, message: str, message_values: Sequence[SSAValue] = ()) -> None:
        super().__init__(operands=[list(message_values)], properties={"message": StringAttr(message)})


class Control(PlainOp, ABC):
    """A control-flow op with bodies of `dl` ops, which end in `dl.yield` or `dl.fail`."""

    traits = traits_def(Pure())

    @abstractmethod
    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        """Compute the results with NumPy; `run` evaluates a body. Raises DlcError if a branch that fails is taken."""

    def require_body(self, block: Block, arguments: Sequence[Attribute], yielded: Sequence[Attribute]) -> None:
        """Raise VerifyException unless the arguments and results of a body have these types."""
        if [a.type for a in block.args] != list(arguments):
            raise VerifyException(f"{self.name}: a body takes {', '.join(map(str, arguments)) or 'nothing'}")
        match block.last_op:
            case YieldOp(values=values):
                if [v.type for v in values] != list(yielded):
                    raise VerifyException(f"{self.name}: a body yields {', '.join(map(str, yielded))}")
            case FailOp(message_values=message_values):
                if any(v.type != tensor_type((), i64) for v in message_values):
                    raise VerifyException(f"{self.name}: operands of dl.fail must be rank-0 i64")
            case _:
                raise VerifyException(f"{self.name}: a body must end in dl.yield or dl.fail")


class SingleFunctionControl(Control, ABC):
    """A control-flow op with a main function, its first body."""

    @property
    def block(self) -> Block:
        """The function's block."""
        return self.regions[0].block

    @property
    def yielded(self) -> Sequence[SSAValue]:
        """The values that the function returns."""
        last = self.block.last_op
        assert isinstance(last, YieldOp)
        return last.values


class LoopLikeOp(SingleFunctionControl, ABC):
    """A loop: its body runs repeatedly and carries states from one iteration to the next."""


@irdl_op_definition
class ScanOp(LoopLikeOp):
    """A scan (recurrence): runs its body for each element of the sequences, with states carried from iteration to iteration.

        %last, %all = dl.scan %first, %xs {states = 1, length = array<i64: 5>}
            : (tensor<4xf32>, tensor<5x4xf32>) -> (tensor<4xf32>, tensor<5x4xf32>) {
        ^bb0(%state: tensor<4xf32>, %x: tensor<4xf32>):
          %p = dl.mul %state, %v : …
          %next = dl.add %p, %x : …
          dl.yield %next, %next : …
        }

    Operands are the initial states, then the sequences, with elements along axis 0. The body yields the next states, then one
    element of each result sequence; results are the final states and the result sequences. With `reverse` set it runs from the
    last element to the first; elements of result sequences have the index of the input elements. With `snapshots` set, reverse
    mode stores that many states, and repeats the steps between them.
    (C1) each sequence has `length` elements; (C2) the body takes states and elements of the sequences; (C3) it yields states of
    the states' types.
    """

    name = "dl.scan"
    states = prop_def(IntegerAttr)
    length = prop_def()
    reverse = opt_prop_def(BoolAttr)
    snapshots = opt_prop_def(IntegerAttr)
    arguments = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")

    @classmethod
    def of(
        cls,
        arguments: Sequence[SSAValue],
        body: Block,
        states: int,
        length: Size,
        reverse: bool = False,
        snapshots: int | None = None,
    ) -> Self:
        """Create the op with these operands; the result types follow from the body."""
        properties = {"states": attribute(states), "length": attribute((length,))}
        if reverse:
            properties["reverse"] = attribute(True)
        if snapshots is not None:
            properties["snapshots"] = attribute(snapshots)
        yield_op = body.last_op
        assert isinstance(yield_op, YieldOp)
        results = _scan_results(yield_op.values, states, length)
        return cls.create(operands=arguments, result_types=results, properties=properties, regions=[Region(body)])

    @property
    def state_count(self) -> int:
        return int(number(self.states))

    @property
    def steps(self) -> Size:
        """The number of iterations."""
        return sizes(self.length)[0]

    @property
    def is_reverse(self) -> bool:
        """Return whether the scan runs from the last elements to the first."""
        return flag(self.reverse)

    def verify_(self) -> None:
        count = self.state_count
        if not 0 <= count <= min(len(self.arguments), len(self.results)) or len(sizes(self.length)) != 1:
            raise VerifyException(f"dl.scan: expected at least {count} operands and results, its states, and one length")
        states, sequences = self.arguments[:count], self.arguments[count:]
        if any(shape_of(v)[:1] != (self.steps,) for v in sequences):
            raise VerifyException(f"dl.scan: expected sequences of {self.steps} elements (C1)")
        elements = [tensor_type(shape_of(v)[1:], element_type_of(v)) for v in sequences]
        result_elements = [tensor_type(shape_of(r)[1:], element_type_of(r)) for r in self.results[count:]]
        state_types = [v.type for v in states]
        self.require_body(self.block, [*state_types, *elements], [*state_types, *result_elements])
        if not isinstance(self.block.last_op, YieldOp) or [r.type for r in self.results] != list(
            _scan_results(self.yielded, count, self.steps)
        ):
            raise VerifyException("dl.scan: result types do not match the values that the body yields (C3)")

    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        def empty() -> list[Array]:
            sequences = self.results[self.state_count :]
            return [np.zeros([int(s) for s in shape_of(r)], numpy_dtype(element_type_of(r))) for r in sequences]

        def step(arguments: Sequence[Array]) -> Sequence[Array]:
            return run(self.block, arguments)

        return scan(operands, self.state_count, int(self.steps), empty, step, self.is_reverse)


def _scan_results(yielded: Sequence[SSAValue], states: int, length: Size) -> list[Tensor]:
    """Return the types of the final states, and of the sequences of the other yielded values."""
    sequences = [tensor_type((length, *shape_of(v)), element_type_of(v)) for v in yielded[states:]]
    return [*map(tensor_of, yielded[:states]), *sequences]


@irdl_op_definition
class WhileOp(LoopLikeOp):
    """A while loop: runs its body as long as the condition that the body computes is true.

        %last = dl.while %begin, %first : (tensor<i1>, tensor<4xf32>) -> (tensor<4xf32>) {
        ^bb0(%state: tensor<4xf32>):
          %next = dl.add %state, %limit : …
          …
          dl.yield %again, %next : tensor<i1>, tensor<4xf32>
        }

    Operands are the condition of the first iteration and the initial states; the body yields the condition of the next
    iteration and the next states. Results are the final states.
    (C1) conditions are rank-0 bools; (C2) the body takes states; (C3) it yields states of the states' types.
    """

    name = "dl.while"
    condition = operand_def(TensorType)
    arguments = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")

    @classmethod
    def of(cls, condition: SSAValue, states: Sequence[SSAValue], body: Block) -> Self:
        """Create the op with these operands."""
        return cls.create(operands=[condition, *states], result_types=[v.type for v in states], regions=[Region(body)])

    def verify_(self) -> None:
        require_condition(self, self.condition)
        states = [v.type for v in self.arguments]
        self.require_body(self.block, states, [tensor_type((), i1), *states])
        if not isinstance(self.block.last_op, YieldOp) or [r.type for r in self.results] != states:
            raise VerifyException("dl.while: result types differ from the types of the states (C3)")

    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        return while_loop(operands, lambda arguments: run(self.block, arguments))


@irdl_op_definition
class IfOp(Control):
    """A conditional: runs one of two bodies.

        %y = dl.if %condition : (tensor<i1>) -> (tensor<4xf32>) {
          %a = dl.exp %x : …
          dl.yield %a : tensor<4xf32>
        } {
          dl.fail "node 'reshape_1' (Reshape): …"
        }

    The first body runs if the condition is true, else the second; the results are the values that it yields. An op without
    results serves as a check: its other body fails.
    (C1) the condition is a rank-0 bool; (C2) bodies take no arguments and yield values of the results' types.
    """

    name = "dl.if"
    condition = operand_def(TensorType)
    outputs = var_result_def(TensorType)
    then = region_def("single_block")
    otherwise = region_def("single_block")

    @classmethod
    def of(cls, condition: SSAValue, then: Block, otherwise: Block, types: Sequence[Attribute]) -> Self:
        """Create the op with results of these types."""
        return cls.create(operands=[condition], result_types=types, regions=[Region(then), Region(otherwise)])

    def verify_(self) -> None:
        require_condition(self, self.condition)
        for block in self.blocks:
            self.require_body(block, [], [r.type for r in self.results])

    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        (condition,) = operands
        block = self.blocks[0 if condition else 1]
        results = run(block, ())
        if isinstance(block.last_op, FailOp):
            raise DlcError(format_failure(block.last_op.message.data, [int(n) for n in results]))
        return results


@irdl_op_definition
class PrintOp(Control):
    """Prints its operands.

        dl.print %x {format_parts = ["x is ", ".3f", ""]} : (tensor<4xf32>) -> ()

    `format_parts` alternates between literal text and the format of the next operand. The op has no results and is never
    removed; print ops run in program order.
    (C1) every operand is preceded and followed by a text.
    """

    name = "dl.print"
    format_parts = prop_def(ArrayAttr[StringAttr])
    arguments = var_operand_def(TensorType)
    traits = traits_def()

    def __init__(self, format_parts: Sequence[str], arguments: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(arguments)], properties={"format_parts": ArrayAttr(map(StringAttr, format_parts))})

    @property
    def texts(self) -> list[str]:
        return [part.data for part in self.format_parts]

    def verify_(self) -> None:
        if len(self.format_parts) != 2 * len(self.arguments) + 1:
            raise VerifyException(f"{self.name}: {len(self.format_parts)} format parts for {len(self.arguments)} operands (C1)")

    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        print(format_print(self.texts, operands))
        return ()


def has_effect(op: Operation) -> bool:
    """Return whether an op has side effects: it prints, or an op in its bodies does."""
    return isinstance(op, Control) and contains(op, PrintOp)


def require_condition(op: Control, condition: SSAValue) -> None:
    """Raise VerifyException unless a condition is a rank-0 bool."""
    if condition.type != tensor_type((), i1):
        raise VerifyException(f"{op.name}: condition of type {condition.type}; expected a rank-0 bool (C1)")


def read_values(op: Operation) -> list[SSAValue]:
    """Return the values of the enclosing blocks that an op and its bodies read."""
    return [*op.operands, *(v for region in op.regions for v in captured_values(region.block))]


def captured_values(block: Block) -> list[SSAValue]:
    """Return the values of enclosing blocks that a body and its nested bodies read: without duplicates, in program order."""
    defined: set[SSAValue] = set()
    values: dict[SSAValue, None] = {}

    def visit(block: Block) -> None:
        defined.update(block.args)
        for op in block.ops:
            for value in op.operands:
                if value not in defined:
                    values[value] = None
            for region in op.regions:
                visit(region.block)
            defined.update(op.results)

    visit(block)
    return list(values)

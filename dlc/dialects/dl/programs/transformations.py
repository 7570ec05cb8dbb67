"""Transformations of functions: derivatives and vmap, as ops whose body is the function.

Bodies capture values of the enclosing block, as those of loops do; captured values are unbatched and have no tangent. The first
pass of the `dl` stage expands each op to ordinary ops, the innermost first, so that no later pass sees them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    attribute,
    element_type_of,
    ints,
    number,
    shape_of,
    sizes,
    tensor_of,
    tensor_type,
)
from dlc.dialects.dl.dtypes import is_float
from dlc.dialects.dl.programs.control import RunBlock, SingleFunctionControl
from dlc.dialects.dl.programs.program import YieldOp
from dlc.errors import CompileError
from dlc.ir import (
    Attribute,
    Block,
    DenseArrayBase,
    IntegerAttr,
    OpResult,
    Region,
    SSAValue,
    TensorType,
    VerifyException,
    irdl_op_definition,
    opt_prop_def,
    opt_region_def,
    prop_def,
    region_def,
    var_operand_def,
    var_result_def,
)
from dlc.shapes.dims import Size

# The batch axis of an unbatched value.
NOT_BATCHED = -1


class Transformation(SingleFunctionControl, ABC):
    """A transformed function, applied to the operands."""

    arguments = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)

    @abstractmethod
    def inferred_results(self) -> Sequence[Tensor]:
        """Return the result types that follow from the body."""

    def with_results(self) -> Self:
        """Attach the inferred results to a new op and return it."""
        self.results = type(self.results)(OpResult(t, self, i) for i, t in enumerate(self.inferred_results()))
        return self

    def require_results(self) -> None:
        """Raise VerifyException unless the result types follow from the body."""
        if not isinstance(self.block.last_op, YieldOp) or [r.type for r in self.results] != list(self.inferred_results()):
            raise VerifyException(f"{self.name}: result types do not match those that follow from the body")

    def execute(self, operands: Sequence[Array], run: RunBlock) -> Sequence[Array]:
        raise CompileError(f"{self.name} was not expanded; run the pass expand-transformations first")


class Derivative(Transformation, ABC):
    """A derivative of a function with respect to the arguments `wrt`.

    Operands are the function's arguments, then the seeds: tangents or cotangents.
    """

    wrt = prop_def(DenseArrayBase)
    body = region_def("single_block")

    @property
    def wrt_indices(self) -> tuple[int, ...]:
        return ints(self.wrt)

    @property
    def primals(self) -> Sequence[SSAValue]:
        """The function's arguments."""
        return self.operands[: len(self.block.args)]

    @property
    def seeds(self) -> Sequence[SSAValue]:
        """The tangents or cotangents among the operands."""
        return self.operands[len(self.block.args) :]

    @property
    @abstractmethod
    def seeded_values(self) -> Sequence[SSAValue]:
        """The values that the seeds are tangents or cotangents of."""

    def verify_(self) -> None:
        primals = [v.type for v in self.primals]
        if any(not 0 <= i < len(primals) or not is_float(element_type_of(primals[i])) for i in self.wrt_indices):
            raise VerifyException(f"{self.name}: wrt {self.wrt_indices}; expected indices of float arguments (C2)")
        self.require_body(self.block, primals, [v.type for v in self.yielded])
        if [v.type for v in self.seeds] != [v.type for v in self.seeded_values]:
            raise VerifyException(f"{self.name}: tangents or cotangents differ in type from their primal values (C3)")
        self.require_results()


@irdl_op_definition
class JvpOp(Derivative):
    """Forward mode: the results of a function, and their tangents.

        %y, %dy = dl.jvp %x, %dx {wrt = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
        ^bb0(%x: tensor<4xf32>):
          %s = dl.sin %x : …
          dl.yield %s : tensor<4xf32>
        }

    Operands are the arguments, then a tangent for each of `wrt`; results are those of the function, then a tangent for each
    float result.
    (C1) the body takes the arguments; (C2) `wrt` are float arguments; (C3) tangents have the types of their arguments.
    """

    name = "dl.jvp"

    @classmethod
    def of(cls, primals: Sequence[SSAValue], tangents: Sequence[SSAValue], body: Block, wrt: Sequence[int]) -> Self:
        """Create the op with these operands."""
        op = cls.create(operands=[*primals, *tangents], properties={"wrt": attribute(wrt)}, regions=[Region(body)])
        return op.with_results()

    @property
    def seeded_values(self) -> Sequence[SSAValue]:
        return [self.primals[i] for i in self.wrt_indices]

    def inferred_results(self) -> Sequence[Tensor]:
        results = [tensor_of(v) for v in self.yielded]
        return [*results, *(t for t in results if is_float(t.element_type))]


@irdl_op_definition
class VjpOp(Derivative):
    """Reverse mode: the results of a function, and the cotangents of its arguments.

        %y, %gx = dl.vjp %x, %gy {wrt = array<i64: 0>, of = array<i64: 0>} : (…) -> (…) {
        ^bb0(%x: tensor<4xf32>):
          %s = dl.sin %x : …
          dl.yield %s : tensor<4xf32>
        }

    Operands are the arguments, then a cotangent for each result of `of`; the other cotangents are zero. Results are those of
    the function, then a cotangent for each argument of `wrt`.
    (C1) the body takes the arguments; (C2) `wrt` are float arguments and `of` float results; (C3) cotangents have the types of
    their results.
    """

    name = "dl.vjp"
    of_results = prop_def(DenseArrayBase, prop_name="of")

    @classmethod
    def of(
        cls, primals: Sequence[SSAValue], cotangents: Sequence[SSAValue], body: Block, wrt: Sequence[int], of: Sequence[int]
    ) -> Self:
        """Create the op with these operands."""
        properties = {"wrt": attribute(wrt), "of": attribute(of)}
        op = cls.create(operands=[*primals, *cotangents], properties=properties, regions=[Region(body)])
        return op.with_results()

    @property
    def of_indices(self) -> tuple[int, ...]:
        return ints(self.of_results)

    @property
    def seeded_values(self) -> Sequence[SSAValue]:
        return [self.yielded[i] for i in self.of_indices]

    def inferred_results(self) -> Sequence[Tensor]:
        return [*map(tensor_of, self.yielded), *(tensor_of(self.primals[i]) for i in self.wrt_indices)]


@irdl_op_definition
class VmapOp(Transformation):
    """Applies a function to every entry of a batch: the body is the function of one entry.

        %y = dl.vmap %x, %w {size = 8, in_axes = array<i64: 0, -1>, out_axes = array<i64: 1>}
            : (tensor<8x4xf32>, tensor<4xf32>) -> (tensor<4x8xf32>) {
        ^bb0(%row: tensor<4xf32>, %w: tensor<4xf32>):
          %p = dl.mul %row, %w : …
          dl.yield %p : tensor<4xf32>
        }

    `in_axes` and `out_axes` are the batch axes of operands and results; -1: unbatched.
    (C1) batch axes have the size `size`; (C2) the body takes the operands without their batch axes; (C3) an unbatched result
    does not depend on a batched value, which the expansion of the op verifies.
    """

    name = "dl.vmap"
    size = prop_def(IntegerAttr | DenseArrayBase | DimsAttr)
    in_axes = prop_def(DenseArrayBase)
    out_axes = prop_def(DenseArrayBase)
    body = region_def("single_block")

    @classmethod
    def of(
        cls, arguments: Sequence[SSAValue], body: Block, size: Size, in_axes: Sequence[int], out_axes: Sequence[int]
    ) -> Self:
        """Create the op with these operands."""
        size_attribute = attribute(size if isinstance(size, int) else (size,))
        properties = {"size": size_attribute, "in_axes": attribute(in_axes), "out_axes": attribute(out_axes)}
        return cls.create(operands=arguments, properties=properties, regions=[Region(body)]).with_results()

    @property
    def batch_size(self) -> Size:
        return int(number(self.size)) if isinstance(self.size, IntegerAttr) else sizes(self.size)[0]

    def inferred_results(self) -> Sequence[Tensor]:
        return [add_batch_axis(v, axis, self.batch_size) for v, axis in zip(self.yielded, ints(self.out_axes), strict=True)]

    def verify_(self) -> None:
        if len(ints(self.in_axes)) != len(self.arguments) or len(ints(self.out_axes)) != len(self.results):
            raise VerifyException("dl.vmap: in_axes and out_axes need an entry per operand and per result")
        for v, axis in zip(self.arguments, ints(self.in_axes), strict=True):
            if axis != NOT_BATCHED and shape_of(v)[axis : axis + 1] != (self.batch_size,):
                raise VerifyException(f"dl.vmap: axis {axis} of {shape_of(v)} must have the batch size {self.batch_size} (C1)")
        unbatched_types = [remove_batch_axis(v, axis) for v, axis in zip(self.arguments, ints(self.in_axes), strict=True)]
        self.require_body(self.block, unbatched_types, [v.type for v in self.yielded])
        self.require_results()


def add_batch_axis(value: SSAValue | Attribute, axis: int, size: Size) -> Tensor:
    """Return the type of a value with a batch axis of `size` inserted at `axis`."""
    shape = shape_of(value)
    return (
        tensor_of(value) if axis == NOT_BATCHED else tensor_type((*shape[:axis], size, *shape[axis:]), element_type_of(value))
    )


def remove_batch_axis(value: SSAValue | Attribute, axis: int) -> Tensor:
    """Return the type of a value without its batch axis."""
    shape = shape_of(value)
    result_shape = (*shape[:axis], *shape[axis + 1 :])
    return tensor_of(value) if axis == NOT_BATCHED else tensor_type(result_shape, element_type_of(value))


class CustomDerivativeRule(Transformation, ABC):
    """A function with a custom derivative rule; if it is not differentiated, it is its first body."""

    def inferred_results(self) -> Sequence[Tensor]:
        return [tensor_of(v) for v in self.yielded]

    def verify_(self) -> None:
        self.require_body(self.block, [v.type for v in self.arguments], [v.type for v in self.yielded])
        self.require_results()


@irdl_op_definition
class CustomJvpOp(CustomDerivativeRule):
    """A function with a custom rule for tangents (forward mode).

        %y = dl.custom_jvp %x : (tensor<4xf32>) -> (tensor<4xf32>) {
        ^bb0(%x: tensor<4xf32>):
          …
          dl.yield %y : tensor<4xf32>
        } {
        ^bb0(%x: tensor<4xf32>, %dx: tensor<4xf32>):
          …
          dl.yield %y, %dy : tensor<4xf32>, tensor<4xf32>
        }

    The rule takes the arguments, then a tangent for each float argument; it yields the results, then a tangent for each float
    result.
    """

    name = "dl.custom_jvp"
    body = region_def("single_block")
    rule = region_def("single_block")

    @classmethod
    def of(cls, arguments: Sequence[SSAValue], body: Block, rule: Block) -> Self:
        """Create the op with these operands."""
        return cls.create(operands=arguments, regions=[Region(body), Region(rule)]).with_results()

    def verify_(self) -> None:
        super().verify_()
        arguments, results = ([tensor_of(v) for v in values] for values in (self.arguments, self.yielded))
        self.require_body(self.blocks[1], [*arguments, *floats(arguments)], [*results, *floats(results)])


@irdl_op_definition
class CustomVjpOp(CustomDerivativeRule):
    """A function with a custom rule for cotangents (reverse mode).

        %y = dl.custom_vjp %x : (tensor<4xf32>) -> (tensor<4xf32>) {function} {forward} {backward}

    `forward` takes the arguments and yields the results, then the residuals. `backward` takes the residuals, then a cotangent
    for each float result, and yields a cotangent for each float argument.
    """

    name = "dl.custom_vjp"
    body = region_def("single_block")
    forward = region_def("single_block")
    backward = region_def("single_block")

    @classmethod
    def of(cls, arguments: Sequence[SSAValue], body: Block, forward: Block, backward: Block) -> Self:
        """Create the op with these operands."""
        return cls.create(operands=arguments, regions=[Region(body), Region(forward), Region(backward)]).with_results()

    def verify_(self) -> None:
        super().verify_()
        arguments, results = ([tensor_of(v) for v in values] for values in (self.arguments, self.yielded))
        forward, backward = self.blocks[1:]
        forward_types = [tensor_of(v) for v in forward.last_op.operands] if forward.last_op is not None else []
        self.require_body(forward, arguments, [*results, *forward_types[len(results) :]])
        self.require_body(backward, [*forward_types[len(results) :], *floats(results)], floats(arguments))


@irdl_op_definition
class CheckpointOp(CustomDerivativeRule):
    """A function whose derivative needs less memory.

    %y = dl.checkpoint %x : (tensor<4xf32>) -> (tensor<4xf32>) {
    ^bb0(%x: tensor<4xf32>):
      …
      dl.yield %y : tensor<4xf32>
    }

    Reverse mode recomputes the intermediate values from the arguments instead of storing them. With `memory` set, it stores
    those outside of scans, and up to that many bytes for each scan, whose steps it repeats; 0: as few bytes as possible if each
    step is repeated once.
    """

    name = "dl.checkpoint"
    memory = opt_prop_def(IntegerAttr)
    body = region_def("single_block")

    @classmethod
    def of(cls, arguments: Sequence[SSAValue], body: Block, memory_bytes: int | None = None) -> Self:
        """Create the op with these operands."""
        properties = {} if memory_bytes is None else {"memory": attribute(memory_bytes)}
        return cls.create(operands=arguments, properties=properties, regions=[Region(body)]).with_results()

    @property
    def memory_bytes(self) -> int | None:
        return None if self.memory is None else int(number(self.memory))


@irdl_op_definition
class LinearCallOp(CustomDerivativeRule):
    """A linear function, such as the solution of a linear system, whose captured values are constants for derivatives.

        %x = dl.linear_call %b : (tensor<4xf32>) -> (tensor<4xf32>) {
        ^bb0(%b: tensor<4xf32>):
          …
          dl.yield %x : tensor<4xf32>
        } {
        ^bb0(%cotangent: tensor<4xf32>):
          …
          dl.yield %b_cotangent : tensor<4xf32>
        }

    Tangents are mapped by the function, cotangents by its transpose, the second body. Without a second body, reverse mode
    transposes the function op by op. Unlike those of other custom rules, the bodies may capture differentiated values.
    A function without arguments is a constant for derivatives.
    (C1) arguments are floats, and so are results if there are arguments; (C2) the transpose maps the types of the results to
    those of the arguments.
    """

    name = "dl.linear_call"
    body = region_def("single_block")
    transpose = opt_region_def("single_block")

    @classmethod
    def of(cls, arguments: Sequence[SSAValue], body: Block, transpose: Block | None = None) -> Self:
        """Create the op with these operands."""
        regions = [Region(block) for block in (body, transpose) if block is not None]
        return cls.create(operands=arguments, regions=regions).with_results()

    def verify_(self) -> None:
        super().verify_()
        arguments, results = ([tensor_of(v) for v in values] for values in (self.arguments, self.yielded))
        if arguments and floats([*arguments, *results]) != [*arguments, *results]:
            raise VerifyException("dl.linear_call: an argument or a result is not a float (C1)")
        if self.transpose is not None:
            self.require_body(self.transpose.block, results, arguments)


def floats(types: Sequence[Tensor]) -> list[Tensor]:
    """Return the types with float elements: those that have tangents."""
    return [t for t in types if is_float(t.element_type)]

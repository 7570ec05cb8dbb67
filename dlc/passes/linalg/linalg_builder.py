"""Builder of structured ops on tensors, in destination-passing style, with constants pooled at the start of the kernel.

kernel = LinalgBuilder(builder)
zero = kernel.fill(kernel.constant(0.0, f32), kernel.empty((8, 32), f32))
sums = kernel.generic([(x, x_map), (w, w_map)], (zero, y_map), reductions, multiply_and_add, "sum")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, cast

from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import shape_of, tensor_type
from dlc.dialects.dl.interfaces import Body
from dlc.ir import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    ArrayAttr,
    Attribute,
    Block,
    IntegerAttr,
    LocationAttr,
    Operation,
    Region,
    SSAValue,
    TensorType,
    arith,
    i64,
    linalg,
    tensor,
)
from dlc.passes.linalg.source_reads import SourceRead
from dlc.passes.structured import ConstantPool, OpBuilder, erase_dead
from dlc.passes.types import generic_properties, segments
from dlc.shapes.dims import Dim, Size, product

# A tensor and the map by which a structured op reads or writes it.
TensorAccess: TypeAlias = "tuple[SSAValue, AffineMap]"
# Appends the scalar code of a structured op: (body, one element per input, element of the output) -> next element.
ScalarCode: TypeAlias = "Callable[..., SSAValue]"


def shape(value: SSAValue) -> tuple[Size, ...]:
    return shape_of(value)


def element(value: SSAValue) -> Attribute:
    """Return the element type of a tensor, or the type of a scalar."""
    return cast("TensorType[Attribute]", value.type).element_type if isinstance(value.type, TensorType) else value.type


@lru_cache(maxsize=4096)
def dense_tensor_type(shape: tuple[Size, ...], element: Attribute) -> TensorType[Attribute]:
    """Return a tensor type; symbolic sizes are in its encoding, as in `dl`."""
    return tensor_type(shape, element)


class KernelBody(Body):
    """The body of a structured op: constants go to the pool, and extracts from stand-in tensors become reads of `sources`."""

    def __init__(self, block: Block, ops: OpBuilder, sources: Mapping[SSAValue, SourceRead]) -> None:
        super().__init__(block, ops.location)
        self.constants = ops.constants
        self.sources = sources

    def __call__(self, op: Operation) -> SSAValue:
        if isinstance(op, arith.ConstantOp):
            return self.constants.get(op.value, op.result.type)
        if isinstance(op, tensor.ExtractOp) and op.tensor in self.sources:
            return self.element(self.sources[op.tensor], op.indices)
        return super().__call__(op)

    def size(self, size: Dim) -> SSAValue:
        value = self.constants.size(size)
        assert isinstance(value, SSAValue)
        return value

    def element(self, read: SourceRead, indices: Sequence[SSAValue]) -> SSAValue:
        """Return the element of a read value at these indices."""
        if read.is_scalar:
            return read.source
        source_indices = [emit_index_expression(self, self.constants, e, indices) for e in read.map.results]
        return scalar.extract(self, read.source, source_indices)


_INDEX_OPS: dict[AffineBinaryOpKind, Callable[[SSAValue, SSAValue], Operation]] = {
    AffineBinaryOpKind.Add: arith.AddiOp,
    AffineBinaryOpKind.Mul: arith.MuliOp,
    AffineBinaryOpKind.FloorDiv: arith.DivUIOp,
    AffineBinaryOpKind.Mod: arith.RemUIOp,
}


def emit_index_expression(
    append: Callable[[Operation], SSAValue],
    constants: ConstantPool,
    expression: AffineExpr,
    iterators: Sequence[SSAValue] | Mapping[int, SSAValue],
) -> SSAValue:
    """Emit the value of an index expression by scalar ops; its dividends must not be negative."""
    match expression:
        case AffineConstantExpr(value):
            return constants.index(value)
        case AffineDimExpr(dim):
            return iterators[dim]
        case AffineBinaryOpExpr(kind, lhs, rhs):
            a, b = (emit_index_expression(append, constants, e, iterators) for e in (lhs, rhs))
            return append(_INDEX_OPS[kind](a, b))
        case _:
            raise ValueError(f"index expression {expression} is not supported")


class LinalgBuilder:
    """Appends the ops of one kernel to its block."""

    def __init__(self, ops: OpBuilder) -> None:
        self.ops = ops

    def set_location(self, location: LocationAttr) -> None:
        """Set the location of new ops."""
        self.ops = self.ops.with_location(location)

    def constant(self, value: int | float, type_: Attribute) -> SSAValue:
        """Return a constant, pooled at the start of the kernel."""
        return scalar.constant(KernelBody(Block(), self.ops, {}), value, type_)

    def empty(self, shape: Sequence[Size], element: Attribute) -> SSAValue:
        _, dynamic_sizes = self.ops.split(map(self.ops.size, shape))
        return self.ops.op(
            tensor.EmptyOp.create(operands=dynamic_sizes, result_types=[dense_tensor_type(tuple(shape), element)])
        )

    def fill(self, value: SSAValue, destination: SSAValue) -> SSAValue:
        """Return `destination` with `value` in each element."""
        body = Block(arg_types=[value.type, value.type])
        body.add_op(linalg.YieldOp.create(operands=[body.args[0]]))
        fill = linalg.FillOp.create(
            operands=[value, destination], result_types=[destination.type], properties=segments(1, 1), regions=[Region(body)]
        )
        return self.ops.op(fill)

    def generic(
        self,
        inputs: Sequence[TensorAccess],
        output: TensorAccess,
        reductions: Sequence[bool],
        code: Callable[..., SSAValue],
        name: str | None = None,
        sources: Mapping[SSAValue, SourceRead] | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> SSAValue:
        """Build a linalg.generic.

        Args:
            inputs: Tensors and their indexing maps.
            output: The tensor that is written, and its indexing map.
            reductions: Whether each iterator is reduced.
            code: `code(body, *elements, accumulator)` returns the next element of the output.
            attributes: Attributes of the op.
        """
        operands = [v for v, _ in (*inputs, output)]
        block = Block(arg_types=[element(v) for v in operands])
        body = KernelBody(block, self.ops, sources or {})
        result = code(body, *block.args)
        block.add_op(linalg.YieldOp.create(operands=[result]))
        erase_dead(block)
        op = linalg.GenericOp.create(
            operands=operands,
            result_types=[output[0].type],
            properties=generic_properties([m for _, m in (*inputs, output)], reductions),
            attributes=dict(attributes or {}),
            regions=[Region(block)],
        )
        return self.ops.op(op, name)

    def extract_slice(
        self, source: SSAValue, offsets: Sequence[Size], sizes: Sequence[Size], strides: Sequence[Size] | None = None
    ) -> SSAValue:
        """Return a window of `source`; itself if it is all of it."""
        steps = tuple(strides or (1,) * len(sizes))
        if tuple(sizes) == shape(source) and not any(offsets):
            return source
        operands, properties = self._window([source], offsets, sizes, steps)
        op = tensor.ExtractSliceOp.create(
            operands=operands, result_types=[dense_tensor_type(tuple(sizes), element(source))], properties=properties
        )
        return self.ops.op(op)

    def insert_slice(self, value: SSAValue, destination: SSAValue, offsets: Sequence[Size], steps: Sequence[Size]) -> SSAValue:
        """Return `destination` with `value` in its window at `offsets`."""
        operands, properties = self._window([value, destination], offsets, shape(value), steps)
        return self.ops.op(
            tensor.InsertSliceOp.create(operands=operands, result_types=[destination.type], properties=properties)
        )

    def _window(
        self, tensors: list[SSAValue], offsets: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]
    ) -> tuple[list[SSAValue], dict[str, Attribute]]:
        """Return the operands and properties of a slice op."""
        split = self.ops.split
        starts, extents, strides = (split(map(self.ops.size, entries)) for entries in (offsets, sizes, steps))
        dynamic_operands = [starts[1], extents[1], strides[1]]
        properties = {"static_offsets": starts[0], "static_sizes": extents[0], "static_strides": strides[0]}
        return [*tensors, *(v for values in dynamic_operands for v in values)], {
            **properties,
            **segments(*(1 for _ in tensors), *map(len, dynamic_operands)),
        }

    def reshape(self, value: SSAValue, to: Sequence[Size], groups: Sequence[tuple[range, range]]) -> SSAValue:
        """Reshape a dense tensor; `groups` pairs the axes of both shapes that hold the same elements."""
        sizes = shape(value)
        flat = tuple(product(to[a] for a in result_axes) for _, result_axes in groups)
        if flat != sizes:
            collapse = tensor.CollapseShapeOp.create(
                operands=[value],
                result_types=[dense_tensor_type(flat, element(value))],
                properties={"reassociation": _reassociation([source_axes for source_axes, _ in groups])},
            )
            value = self.ops.op(collapse)
        if flat != tuple(to):
            static_sizes, dynamic_sizes = self.ops.split(map(self.ops.size, to))
            expand = tensor.ExpandShapeOp.create(
                operands=[value, *dynamic_sizes],
                result_types=[dense_tensor_type(tuple(to), element(value))],
                properties={
                    "reassociation": _reassociation([result_axes for _, result_axes in groups]),
                    "static_output_shape": static_sizes,
                },
            )
            value = self.ops.op(expand)
        return value


def _reassociation(groups: Sequence[range]) -> Attribute:
    return ArrayAttr([ArrayAttr([IntegerAttr(a, i64) for a in group]) for group in groups])

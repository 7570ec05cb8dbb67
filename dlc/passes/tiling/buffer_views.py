"""Views of buffers whose axes are dimensions of a nest, and the ops that fill, copy and combine them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dlc.ir import AffineDimExpr, AffineMap, ArrayAttr, Block, Operation, Region, SSAValue, linalg
from dlc.passes.structured import Index, OpBuilder
from dlc.passes.tiling.loop_nests import NestOp, combiner_of
from dlc.passes.types import iterator_types, map_attribute, memref_of, segments

# A subview of a buffer, and the nest dimension of each of its axes.
BufferView: TypeAlias = tuple[SSAValue, Sequence[int]]


def slice_at(builder: OpBuilder, view: BufferView, d: int, index: Index) -> BufferView:
    """Return the slice of a view at one index along a dimension; a view without the dimension is unchanged."""
    buffer, axes = view
    if d not in axes:
        return view
    axis, shape = list(axes).index(d), memref_of(buffer).get_shape()
    offsets: list[Index] = [index if k == axis else 0 for k in range(len(shape))]
    sizes = [1 if k == axis else size for k, size in enumerate(shape)]
    return builder.subview(buffer, offsets, sizes, [axis]), [a for a in axes if a != d]


def combine(builder: OpBuilder, nest_op: NestOp, source: BufferView, destination: BufferView) -> None:
    """Accumulate partial results into `destination` with the reduction's combiner; reduce the axes that only `source` has."""
    combiner = combiner_of(nest_op)
    assert combiner is not None
    (partial, axes), (result, result_axes) = source, destination
    maps = [
        AffineMap.identity(len(axes)),
        AffineMap(len(axes), 0, tuple(AffineDimExpr(list(axes).index(d)) for d in result_axes)),
    ]
    region = Region(Block(arg_types=[memref_of(partial).element_type] * 2))
    block = region.block
    value = combiner.clone(dict(zip(combiner.operands, block.args, strict=True)))
    block.add_op(value)
    block.add_op(linalg.YieldOp(value.results[0]))
    generic(builder, [partial, result], maps, [d not in result_axes for d in axes], region)


def copy(builder: OpBuilder, source: BufferView, destination: BufferView) -> None:
    """Copy a view into another one, whose axes are the same dimensions in any order."""
    (source_buffer, axes), (target_buffer, target_axes) = source, destination
    element = memref_of(source_buffer).element_type
    body = Block(arg_types=[element, element])
    body.add_op(linalg.YieldOp(body.args[0]))
    maps = [
        AffineMap.identity(len(axes)),
        AffineMap(len(axes), 0, tuple(AffineDimExpr(list(axes).index(d)) for d in target_axes)),
    ]
    generic(builder, [source_buffer, target_buffer], maps, [False] * len(axes), Region(body))


def drop_unit_dims(builder: OpBuilder, view: SSAValue) -> SSAValue:
    """Return a rank-reduced view without the dimensions of size 1."""
    shape = memref_of(view).get_shape()
    return builder.subview(view, [0] * len(shape), shape, [i for i, size in enumerate(shape) if size == 1])


def fill(builder: OpBuilder, value: SSAValue, destination: SSAValue) -> None:
    """Insert a linalg.fill of a buffer."""
    body = Block(arg_types=[value.type, value.type])
    body.add_op(linalg.YieldOp(body.args[0]))
    builder.insert(linalg.FillOp.create(operands=[value, destination], properties=segments(1, 1), regions=[Region(body)]))


def generic(
    builder: OpBuilder, operands: Sequence[SSAValue], maps: Sequence[AffineMap], reduced: Sequence[bool], region: Region
) -> Operation:
    """Insert a linalg.generic with one output, the last operand."""
    return builder.insert(
        linalg.GenericOp.create(
            operands=operands,
            properties={
                "indexing_maps": ArrayAttr([map_attribute(m) for m in maps]),
                "iterator_types": iterator_types(tuple(reduced)),
                **segments(len(operands) - 1, 1),
            },
            regions=[region],
        )
    )

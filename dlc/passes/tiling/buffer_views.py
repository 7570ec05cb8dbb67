"""Views of buffers whose axes are dimensions of a nest, and the ops that fill, copy, combine and test them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import (
    AffineExpr,
    AffineMap,
    Attribute,
    Block,
    BoolAttr,
    IntegerType,
    Operation,
    Region,
    SSAValue,
    arith,
    i1,
    linalg,
    memref,
)
from dlc.passes.structured import OpBuilder
from dlc.passes.tiling.affine_access import AffineTerm
from dlc.passes.tiling.iteration_ranges import IterationRange, steps
from dlc.passes.tiling.loop_nests import NestOp, combiner_of
from dlc.passes.types import generic_properties, memref_of, segments, zero_attribute

# A subview of a buffer, and the nest dimension of each of its axes.
BufferView: TypeAlias = tuple[SSAValue, Sequence[int]]
# Elements that one vector op tests for zeros.
_LANES_PER_TEST = 32


def subview(builder: OpBuilder, buffer: SSAValue, axis_ranges: Sequence[tuple[int, IterationRange]]) -> BufferView:
    """Return the view of a buffer that covers a range of each axis, given with its dimension; axes of size 1 are dropped."""
    sizes = [r.size for _, r in axis_ranges]
    unit_axes = [axis for axis, size in enumerate(sizes) if size == 1]
    return builder.subview(buffer, [r.offset for _, r in axis_ranges], sizes, unit_axes), [
        d for d, r in axis_ranges if r.size > 1
    ]


def combine(builder: OpBuilder, nest_op: NestOp, source: BufferView, destination: BufferView) -> None:
    """Accumulate partial results into `destination` with the reduction's combiner; reduce the axes that only `source` has."""
    combiner = combiner_of(nest_op)
    assert combiner is not None
    block = Block(arg_types=[memref_of(source[0]).element_type] * 2)
    value = combiner.clone(dict(zip(combiner.operands, block.args, strict=True)))
    block.add_ops([value, linalg.YieldOp(value.results[0])])
    generic(builder, [source, destination], source[1], Region(block))


def copy(builder: OpBuilder, source: BufferView, destination: BufferView) -> None:
    """Copy a view into another one, whose axes are the same dimensions in any order."""
    block = Block(arg_types=[memref_of(source[0]).element_type] * 2)
    block.add_op(linalg.YieldOp(block.args[0]))
    generic(builder, [source, destination], source[1], Region(block))


def fill(builder: OpBuilder, value: SSAValue, destination: SSAValue) -> None:
    """Insert a linalg.fill of a buffer."""
    body = Block(arg_types=[value.type, value.type])
    body.add_op(linalg.YieldOp(body.args[0]))
    builder.insert(linalg.FillOp.create(operands=[value, destination], properties=segments(1, 1), regions=[Region(body)]))


def generic(builder: OpBuilder, views: Sequence[BufferView], dims: Sequence[int], region: Region) -> Operation:
    """Insert a linalg.generic over `dims` on views of its operands, the output last; dimensions that it lacks are reduced.

    An operand that is shorter than others along a dimension repeats its elements. The view of a scalar has no axes.
    """
    sizes = [memref_of(view).get_shape() if axes else () for view, axes in views]
    extents: dict[int, int] = {}
    for (_, axes), shape in zip(views, sizes, strict=True):
        extents |= {d: max(size, extents.get(d, size)) for d, size in zip(axes, shape, strict=True)}

    def axis_expression(d: int, size: int) -> AffineExpr:
        return AffineTerm(d, 1, extents[d] // size).index_expression(dims.index(d))

    maps = [
        AffineMap(len(dims), 0, tuple(map(axis_expression, axes, shape))) for (_, axes), shape in zip(views, sizes, strict=True)
    ]
    properties = generic_properties(maps, [d not in views[-1][1] for d in dims])
    return builder.insert(
        linalg.GenericOp.create(operands=[view for view, _ in views], properties=properties, regions=[region])
    )


def any_nonzero(builder: OpBuilder, operand_view: BufferView) -> SSAValue:
    """Emit an i1: whether any element of a view is true or nonzero; a float -0 counts as nonzero."""
    view, axes = operand_view
    element, shape = memref_of(view).element_type, memref_of(view).get_shape()
    bits = i1 if element == i1 else IntegerType(8 * numpy_dtype(element).itemsize)
    zero = builder.constants.get(BoolAttr.from_bool(False) if bits == i1 else zero_attribute(bits), bits)
    if shape:
        lanes = min(_LANES_PER_TEST, shape[-1])
        partial, total = (builder.alloca(bits, size, "partial") for size in ((lanes,), ()))
        fill(builder, zero, partial)
        fill(builder, zero, total)
        for body_builder, step_range in steps(builder, IterationRange(0, shape[-1]), lanes, "j"):
            step_view = body_builder.subview(view, [*(0 for _ in axes[1:]), step_range.offset], [*shape[:-1], step_range.size])
            step_partial = body_builder.subview(partial, [0], [step_range.size])
            views = [(step_view, axes), (step_partial, axes[-1:])]
            generic(body_builder, views, axes, _or_body(element, bits))
        generic(builder, [(partial, axes[-1:]), (total, [])], axes[-1:], _or_body(bits, bits))
        view = total
    nonzero = builder.op(memref.LoadOp.get(view, []))
    if not shape and element != bits:
        nonzero = builder.op(arith.BitcastOp(nonzero, bits))
    return nonzero if bits == i1 else builder.op(arith.CmpiOp(nonzero, zero, "ne"))


def _or_body(element: Attribute, bits: IntegerType[int]) -> Region:
    """Return the body of a reduction by bitwise `or` of the elements."""
    block = Block(arg_types=[element, bits])
    x: SSAValue = block.args[0]
    if element != bits:
        block.add_op(cast := arith.BitcastOp(x, bits))
        x = cast.result
    block.add_op(combined := arith.OrIOp(x, block.args[1]))
    block.add_op(linalg.YieldOp(combined.result))
    return Region(block)

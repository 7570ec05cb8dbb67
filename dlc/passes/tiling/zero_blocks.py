"""Detect blocks of zeros at run time."""

from __future__ import annotations

from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import (
    AffineDimExpr,
    AffineMap,
    Attribute,
    Block,
    BoolAttr,
    IntegerType,
    Region,
    SSAValue,
    arith,
    i1,
    linalg,
    memref,
)
from dlc.passes.structured import OpBuilder
from dlc.passes.tiling.buffer_views import BufferView, fill, generic
from dlc.passes.tiling.iteration_ranges import IterationRange, steps
from dlc.passes.types import memref_of, zero_attribute

# Elements that one vector op tests.
_LANES_PER_TEST = 32


def any_nonzero(builder: OpBuilder, operand_view: BufferView) -> SSAValue:
    """Emit an i1: whether any element of a view is true or nonzero; a float -0 counts as nonzero."""
    view, axes = operand_view
    element, shape = memref_of(view).element_type, memref_of(view).get_shape()
    bits = i1 if element == i1 else IntegerType(8 * numpy_dtype(element).itemsize)
    zero = builder.constants.get(BoolAttr.from_bool(False) if bits == i1 else zero_attribute(bits), bits)
    if shape:
        partial, total = (builder.alloca(bits, size, "partial") for size in ((min(_LANES_PER_TEST, shape[-1]),), ()))
        fill(builder, zero, partial)
        fill(builder, zero, total)
        rank = len(axes)
        for body_builder, step_range in steps(builder, IterationRange(0, shape[-1]), memref_of(partial).get_shape()[0], "j"):
            step_view = body_builder.subview(view, [*(0 for _ in axes[1:]), step_range.offset], [*shape[:-1], step_range.size])
            step_partial = body_builder.subview(partial, [0], [step_range.size])
            maps = [AffineMap.identity(rank), AffineMap(rank, 0, (AffineDimExpr(rank - 1),))]
            generic(body_builder, [step_view, step_partial], maps, [*(True for _ in axes[1:]), False], _or_body(element, bits))
        generic(builder, [partial, total], [AffineMap.identity(1), AffineMap(1, 0, ())], [True], _or_body(bits, bits))
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

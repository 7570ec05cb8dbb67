"""Batch the body of `dl.loops`: every grid gets a leading dimension, which indexes the batched buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from dlc.dialects.dl.library_kernels.loops import LoopBodyAttr
from dlc.dialects.sizes import argument_size_attributes, sizes_of, symbol
from dlc.ir import (
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    ArrayAttr,
    FunctionType,
    IndexType,
    Operation,
    SSAValue,
    index,
    memref,
    scf,
    vector,
)
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.types import map_attribute, memref_of, memref_type, segments
from dlc.shapes.dims import Dim, Size


def batched_loop_body(
    body: LoopBodyAttr, is_batched: Sequence[bool], size: Size, argument_sizes: Sequence[Size]
) -> tuple[LoopBodyAttr, Sequence[Size]]:
    """Return the body on buffers of which some have a leading batch axis, and the sizes that are its last arguments.

    scf.parallel (%i) = 0 to 4 { memref.load %x[%i] }
    →
    scf.parallel (%b, %i) = (0, 0) to (size, 4) { memref.load %x[%b, %i] }
    """
    function = body.function.clone()
    block = function.body.block
    builder = OpBuilder(ConstantPool(function), block)
    shapes = [() if isinstance(a.type, IndexType) else sizes_of(a) for a in block.args]
    if isinstance(size, int):
        local_size, end = size, builder.constants.index(size)
    else:
        if size not in argument_sizes:
            block.insert_arg(index, len(block.args)).name_hint = symbol(len(argument_sizes))
            argument_sizes, shapes = [*argument_sizes, size], [*shapes, ()]
        position = argument_sizes.index(size)
        local_size, end = Dim.symbol(symbol(position)), block.args[position - len(argument_sizes)]
    batched_arguments = [a for a, batched in zip(block.args, is_batched, strict=False) if batched]
    for argument in batched_arguments:
        shape = shapes[argument.index] = (local_size, *shapes[argument.index])
        cast(Any, argument)._type = memref_type(memref_of(argument).element_type, shape)
    if argument_sizes:
        function.properties["arg_attrs"] = ArrayAttr(list(map(argument_size_attributes, shapes)))
    buffers: set[SSAValue] = {*batched_arguments}
    function.properties["function_type"] = FunctionType.from_lists([a.type for a in block.args], [])
    for grid in [op for op in block.ops if isinstance(op, scf.ParallelOp)]:
        batch_index = _add_leading_dimension(builder, grid, end)
        for op in grid.body.block.walk():
            _add_leading_index(op, buffers, batch_index)
    return LoopBodyAttr.of(function), argument_sizes


def _add_leading_dimension(builder: OpBuilder, grid: scf.ParallelOp, end: SSAValue) -> SSAValue:
    """Add a leading dimension of size `end` to a grid; return its index."""
    zero, one = map(builder.constants.index, (0, 1))
    n = len(grid.lowerBound) + 1
    operands = [zero, *grid.lowerBound, end, *grid.upperBound, one, *grid.step]
    batch_index = grid.body.block.insert_arg(index, 0)
    batch_index.name_hint = "b"
    grid.properties |= segments(n, n, n, 0)
    grid.operands = operands
    return batch_index


def _add_leading_index(op: Operation, buffers: set[SSAValue], batch_index: SSAValue) -> None:
    """Add an index to an access of a batched buffer."""
    if isinstance(op, memref.LoadOp | memref.StoreOp) and op.memref in buffers:
        position = 1 + isinstance(op, memref.StoreOp)
        op.operands = [*op.operands[:position], batch_index, *op.operands[position:]]
    elif isinstance(op, vector.TransferReadOp | vector.TransferWriteOp) and op.source in buffers:
        position = 1 + isinstance(op, vector.TransferWriteOp)
        rank = len(op.indices) + 1
        operands = [*op.operands[:position], batch_index, *op.operands[position:]]
        counts = (1, rank, 1, 0) if position == 1 else (1, 1, rank, 0)
        results = [_shifted(e) for e in op.permutation_map.data.results]
        op.properties |= {
            "permutation_map": map_attribute(AffineMap(rank, 0, tuple(results))),
            **segments(*counts),
        }
        op.operands = operands


def _shifted(e: AffineExpr) -> AffineExpr:
    """Return the dimension of a permutation map after a leading dimension."""
    return AffineExpr.dimension(e.position + 1) if isinstance(e, AffineDimExpr) else e

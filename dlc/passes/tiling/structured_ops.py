"""Queries on structured ops: indexing maps, iterators, and the loads of their bodies."""

from __future__ import annotations

from collections.abc import Container

from dlc.dialects.sizes import sizes_of, strides_of
from dlc.errors import UnsupportedError
from dlc.ir import (
    AffineDimExpr,
    AffineMap,
    IteratorTypeAttr,
    MemRefType,
    Operation,
    SSAValue,
    arith,
    linalg,
    memref,
)
from dlc.passes.types import memref_of
from dlc.shapes.dims import Size

# Attribute of a contraction: it has two accumulators per sum, for the first and the second half of the reduction.
TWO_ACCUMULATORS = "dl.two_accumulators"
# Attribute of an op: it adds only one step of a reduction to the accumulators.
ONE_STEP = "dl.one_step"

# The unroll factor of scalar loops.
SCALAR_UNROLL_ELEMENTS = 4

StructuredOp = linalg.GenericOp | linalg.FillOp


def has_indirect_loads_in_body(op: Operation) -> bool:
    """Return whether the body loads from memory at computed indices; such a body is not vectorized by default."""
    loads = (o for o in op.regions[0].block.ops if isinstance(o, memref.LoadOp))
    return any(not isinstance(index.owner, arith.ConstantOp) for load in loads for index in load.indices)


def contiguous_load_iterator(op: Operation) -> int | None:
    """Return the iterator along which all indirect loads read contiguous or equal elements, so that they are vector loads.

    %row = memref.load %indices[%i];  %v = memref.load %x[%row, %j]   →   j
    """
    body = op.regions[0].block
    indices = [o for o in body.ops if isinstance(o, linalg.IndexOp)]
    for d in sorted({o.dim.value.data for o in indices}, reverse=True):
        varying: set[SSAValue] = set()
        for inner in body.ops:
            is_index = isinstance(inner, linalg.IndexOp) and inner.dim.value.data == d
            if is_index or not varying.isdisjoint(inner.operands):
                varying.update(inner.results)
        loads = [o for o in body.ops if isinstance(o, memref.LoadOp) and not varying.isdisjoint(o.indices)]
        if loads and all(loads_contiguously(load, varying) for load in loads):
            return d
    return None


def loads_contiguously(load: memref.LoadOp, varying: Container[SSAValue]) -> bool:
    """Return whether a load varies only in its last index, which is an iterator plus an offset, over contiguous memory."""
    *outer, last = load.indices
    if any(i in varying for i in outer) or strides_of(load.memref)[-1] != 1:
        return False
    terms = last.owner.operands if isinstance(last.owner, arith.AddiOp) else [last]
    (term, *other_terms) = [t for t in terms if t in varying]
    return not other_terms and isinstance(term.owner, linalg.IndexOp)


def is_read(op: StructuredOp, k: int) -> bool:
    """Return whether the body uses operand `k`; an operand may be present only to define iterator extents."""
    return op.regions[0].block.args[k].first_use is not None


def operand_maps(op: StructuredOp) -> list[AffineMap]:
    """Return one indexing map per operand."""
    if isinstance(op, linalg.FillOp):
        rank = len(memref_of(op.outputs[0]).get_shape())
        return [AffineMap(rank, 0, ()), AffineMap.identity(rank)]
    return [m.data for m in op.indexing_maps]


_REDUCTION = IteratorTypeAttr.reduction()


def reduction_iterators(op: StructuredOp) -> list[bool]:
    """Return for each iterator whether it is a reduction."""
    if isinstance(op, linalg.FillOp):
        return [False] * len(memref_of(op.outputs[0]).get_shape())
    return [t == _REDUCTION for t in op.iterator_types]


def iterator_extents(op: StructuredOp) -> list[Size]:
    """Return the extent of each iterator, from the shapes of the operands.

    Raises UnsupportedError for an iterator that no operand uses as a plain index, as MLIR does: the loop has no bounds.
    """
    maps = operand_maps(op)
    extents: list[Size] = [-1] * maps[0].num_dims
    for operand, map_ in zip(op.operands, maps, strict=True):
        if not isinstance(operand.type, MemRefType):
            continue
        for size, expr in zip(sizes_of(operand), map_.results, strict=True):
            if isinstance(expr, AffineDimExpr):
                extents[expr.position] = size
    if -1 in extents:
        raise UnsupportedError(f"{op.name}: no operand defines the extent of iterator {extents.index(-1)}")
    return extents

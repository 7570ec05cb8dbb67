"""What a structured op says of itself: its maps and iterators, and where its body loads from."""

from __future__ import annotations

from collections.abc import Container

from dlc.dialects.sizes import sizes_of, strides_of
from dlc.dims import Size
from dlc.errors import UnsupportedError
from dlc.ir import AffineDimExpr, AffineMap, IteratorTypeAttr, MemRefType, Operation, SSAValue, arith, linalg, memref
from dlc.passes.types import memref_of

# Says of a contraction that each sum is made as two, of the first and of the second half of what is reduced.
IN_HALVES = "dl.halves"
# Says of an op that it adds one step of a reduction to sums that go on.
ONE_STEP = "dl.one_step"

StructuredOp = linalg.GenericOp | linalg.FillOp


def loads_at_computed_places(op: Operation) -> bool:
    """Whether its body loads from memory at other places than constants: such a body runs element by element."""
    loads = (o for o in op.regions[0].block.ops if isinstance(o, memref.LoadOp))
    return any(not isinstance(index.owner, arith.ConstantOp) for load in loads for index in load.indices)


def neighbour_loads(op: Operation) -> int | None:
    """The iterator along which all loads at computed places read neighbours or the same: they take vectors along it.

    %row = memref.load %indices[%i];  %v = memref.load %x[%row, %j]   →   j
    """
    body = op.regions[0].block
    lanes = [o for o in body.ops if isinstance(o, linalg.IndexOp)]
    for d in sorted({o.dim.value.data for o in lanes}, reverse=True):
        varying: set[SSAValue] = set()
        for inner in body.ops:
            here = isinstance(inner, linalg.IndexOp) and inner.dim.value.data == d
            if here or not varying.isdisjoint(inner.operands):
                varying.update(inner.results)
        loads = [o for o in body.ops if isinstance(o, memref.LoadOp) and not varying.isdisjoint(o.indices)]
        if loads and all(reads_neighbours(load, varying) for load in loads):
            return d
    return None


def reads_neighbours(load: memref.LoadOp, varying: Container[SSAValue]) -> bool:
    """Whether only the last index varies, as an iterator does, on which something may be added, over contiguous memory."""
    *outer, last = load.indices
    if any(i in varying for i in outer) or strides_of(load.memref)[-1] != 1:
        return False
    terms = last.owner.operands if isinstance(last.owner, arith.AddiOp) else [last]
    (term, *others) = [t for t in terms if t in varying]
    return not others and isinstance(term.owner, linalg.IndexOp)


def is_read(op: StructuredOp, k: int) -> bool:
    """Whether the body uses operand `k`: a window's shape, say, is an operand for its sizes alone."""
    return op.regions[0].block.args[k].first_use is not None


def operand_maps(op: StructuredOp) -> list[AffineMap]:
    """One map per operand."""
    if isinstance(op, linalg.FillOp):
        rank = len(memref_of(op.outputs[0]).get_shape())
        return [AffineMap(rank, 0, ()), AffineMap.identity(rank)]
    return [m.data for m in op.indexing_maps]


_REDUCTION = IteratorTypeAttr.reduction()


def reduction_iterators(op: StructuredOp) -> list[bool]:
    """Which iterators are reduced."""
    if isinstance(op, linalg.FillOp):
        return [False] * len(memref_of(op.outputs[0]).get_shape())
    return [t == _REDUCTION for t in op.iterator_types]


def iterator_extents(op: StructuredOp) -> list[Size]:
    """The number of steps of each iterator, from the shapes that plain map results index.

    An iterator that no operand indexes by itself (one inside a sum or a division only) has no such shape: lowering adds
    none, as in MLIR, where these loops would have no bounds.
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
        raise UnsupportedError(f"{op.name}: iterator {extents.index(-1)} has no operand that gives its extent")
    return extents

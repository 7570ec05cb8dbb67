"""Analyze which elements of buffers grids access: disjoint elements of points, and results that are stored once or summed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

from dlc.dialects.sizes import size_of
from dlc.ir import AffineDimExpr, BlockArgument, Operation, SSAValue, arith, func, math, memref, scf, vector
from dlc.passes.kernel_values import shape_of_vector
from dlc.shapes.dims import Size, UndecidableError

Load: TypeAlias = memref.LoadOp | vector.TransferReadOp
Store: TypeAlias = memref.StoreOp | vector.TransferWriteOp


def loaded_buffer(op: Operation) -> SSAValue | None:
    """Return the buffer that an op loads from."""
    return op.operands[0] if isinstance(op, Load) else None


def stored_buffer(op: Operation) -> SSAValue | None:
    """Return the buffer that an op stores to."""
    return op.operands[1] if isinstance(op, Store) else None


def parallel_dims(grid: scf.ParallelOp, buffers: Collection[SSAValue]) -> list[int]:
    """Return the dimensions of a grid along which no two points access one element of the buffers, in loads or stores.

    Along such a dimension `d`, all accesses to a buffer have the index `a·d + b` on one axis, with the same numbers a and b,
    and at most |a| elements along it.
    """
    accesses = [access for op in grid.body.block.walk() if (access := _access(op)) is not None and access[0] in buffers]
    return [d for d, point in enumerate(grid.body.block.args) if _is_parallel(point, accesses)]


def _access(op: Operation) -> tuple[SSAValue, list[tuple[SSAValue, int]]] | None:
    """Return the buffer of an access, and for each axis the first index and the number of elements."""
    if isinstance(op, memref.LoadOp | memref.StoreOp):
        return op.memref, [(i, 1) for i in op.indices]
    if not isinstance(op, vector.TransferReadOp | vector.TransferWriteOp):
        return None
    value = op.result if isinstance(op, vector.TransferReadOp) else op.vector
    axes = {
        cast(AffineDimExpr, e).position: n
        for e, n in zip(op.permutation_map.data.results, shape_of_vector(value.type), strict=True)
    }
    return op.source, [(i, axes.get(k, 1)) for k, i in enumerate(op.indices)]


def has_final_cotangents(result: BlockArgument, grids: Sequence[scf.ParallelOp]) -> bool:
    """Return whether the cotangents of all values that a result takes are those of its final elements.

    This holds if each element is stored once, or if values are only added to it, after it is initialized by constants.
    """
    accesses = [[op for op in grid.body.block.walk() if (a := _access(op)) is not None and a[0] is result] for grid in grids]
    while accesses and all(_stores_constant(op) for op in accesses[0]):
        del accesses[0]
    ops = [op for in_grid in accesses for op in in_grid]
    loads = [op for op in ops if isinstance(op, Load)]
    stores = [op for op in ops if op not in loads]
    if not loads:
        return len(stores) == 1 and _stores_different_elements(stores[0])
    sums = [_accumulated_load(op.operands[0], op) for op in stores]
    return None not in sums and len(set(sums)) == len(loads)


def _stores_constant(op: Operation) -> bool:
    return isinstance(op, Store) and isinstance(op.operands[0].owner, arith.ConstantOp)


def _stores_different_elements(store: Operation) -> bool:
    """Return whether a store writes different elements in all iterations of the loops and points of the grid around it."""
    access, op = _access(store), store.parent_op()
    assert access is not None
    while op is not None and not isinstance(op, func.FuncOp):
        if isinstance(op, scf.ForOp):
            step = size_of(op.step) if isinstance(op.step.owner, arith.ConstantOp) else 1
            if not _is_parallel(op.body.block.args[0], [access], int(step)):
                return False
        elif isinstance(op, scf.ParallelOp) and not all(_is_parallel(point, [access]) for point in op.body.block.args):
            return False
        op = op.parent_op()
    return True


def _accumulated_load(value: SSAValue, store: Operation) -> Operation | None:
    """Return the load of the stored elements to which a stored value only adds other values; None for other values."""
    op = value.owner
    if not isinstance(op, Operation) or not value.has_one_use():
        return None
    match op:
        case memref.LoadOp() | vector.TransferReadOp():
            load, target = _access(op), _access(store)
            return op if load == target else None
        case arith.AddfOp():
            return _accumulated_load(op.lhs, store) or _accumulated_load(op.rhs, store)
        case math.FmaOp() | vector.FMAOp():
            return _accumulated_load(op.operands[2], store)
        case _:
            return None


def _is_parallel(point: BlockArgument, accesses: Sequence[tuple[SSAValue, list[tuple[SSAValue, int]]]], step: int = 1) -> bool:
    """Return whether different values of `point`, multiples of `step` apart, access different elements of each buffer."""
    candidates: dict[SSAValue, set[Any]] = {}
    for buffer, indices in accesses:
        forms = set[Any]()
        for axis, (index, width) in enumerate(indices):
            form = _linear(index, point)
            if form is not None and form[0] and abs(form[0]) * step >= width:
                forms.add((axis, *form))
        candidates[buffer] = forms if buffer not in candidates else candidates[buffer] & forms
    return all(candidates.values())


def _linear(value: SSAValue, point: BlockArgument) -> tuple[int, Size] | None:
    """Return (a, b) of an index `a·point + b`; None for other indices."""
    if value is point:
        return 1, 0
    with suppress(UndecidableError):
        return 0, size_of(value)
    owner = value.owner
    if not isinstance(owner, arith.AddiOp | arith.SubiOp | arith.MuliOp):
        return None
    x, y = (_linear(v, point) for v in owner.operands)
    if x is None or y is None:
        return None
    if isinstance(owner, arith.MuliOp):
        if x[0] and y[0]:
            return None
        (factor, (a, b)) = (x[1], y) if not x[0] else (y[1], x)
        return (a * factor, b * factor) if isinstance(factor, int) else None
    sign = -1 if isinstance(owner, arith.SubiOp) else 1
    return x[0] + sign * y[0], x[1] + sign * y[1]

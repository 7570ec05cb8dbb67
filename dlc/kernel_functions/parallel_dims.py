"""Find the dimensions of a grid whose points access different elements of some buffers."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any, cast

from dlc.dialects.sizes import size_of
from dlc.ir import AffineDimExpr, BlockArgument, Operation, SSAValue, arith, memref, scf, vector
from dlc.passes.kernel_values import shape_of_vector
from dlc.shapes.dims import Size, UndecidableError


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


def _is_parallel(point: BlockArgument, accesses: list[tuple[SSAValue, list[tuple[SSAValue, int]]]]) -> bool:
    candidates: dict[SSAValue, set[Any]] = {}
    for buffer, indices in accesses:
        forms = set[Any]()
        for axis, (index, width) in enumerate(indices):
            form = _linear(index, point)
            if form is not None and form[0] and abs(form[0]) >= width:
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

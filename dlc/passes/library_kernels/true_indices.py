"""Indices of the true elements of boolean rows."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of, sizes
from dlc.ir import i64
from dlc.passes.library_kernels.builder import Buffer, KernelBuilder
from dlc.passes.library_kernels.values import select


def true_indices(builder: KernelBuilder, op: dl.TrueIndicesOp, x: Buffer, y: Buffer) -> None:
    """Write each index at the position of the next true element, unconditionally: there is no branch to mispredict."""
    (rows, n), end = shape_of(op.x), builder.size(sizes(op.size)[0])
    with builder.grid(rows, n) as row:
        at = builder.cell(builder.index(0))
        with builder.loop(0, builder.size(n)) as i:
            y[row, at.value] = i.as_integer(i64)
            at.value = builder.minimum_index(select(x[row, i], at.value + 1, at.value), end)
        with builder.loop(at.value, builder.index(end) + 1) as rest:
            y[row, rest] = builder.index(builder.size(n)).as_integer(i64)

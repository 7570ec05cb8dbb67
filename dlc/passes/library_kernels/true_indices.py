"""Indices of the true elements of boolean rows."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of, sizes
from dlc.ir import i64
from dlc.passes.library_kernels.builder import Buffer, KernelBuilder
from dlc.passes.library_kernels.values import select


def true_indices(builder: KernelBuilder, op: dl.TrueIndicesOp, x: Buffer, y: Buffer) -> None:
    """Store each index at the next output position, and advance the position if the element is true.

    The unconditional store avoids mispredicted branches.
    """
    (rows, n), end = shape_of(op.x), builder.size(sizes(op.size)[0])
    with builder.grid(rows, n) as row:
        position = builder.cell(builder.index(0))
        with builder.loop(0, builder.size(n)) as i:
            y[row, position.value] = i.as_integer(i64)
            position.value = builder.minimum_index(select(x[row, i], position.value + 1, position.value), end)
        with builder.loop(position.value, builder.index(end) + 1) as unused:
            y[row, unused] = builder.index(builder.size(n)).as_integer(i64)

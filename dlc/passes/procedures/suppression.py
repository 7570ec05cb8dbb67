"""Boxes without those that overlap better ones, row by row."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dims import Size
from dlc.ir import i64
from dlc.passes.procedures.code import Buffer, Code
from dlc.passes.procedures.values import Index, Value, maximum, minimum, select


def suppress(code: Code, op: dl.SuppressOp, rows: Size, buffers: Sequence[Buffer]) -> None:
    """A box is compared with those before it that are kept; of a row that has as many as it may, with none."""
    boxes, candidates, most, iou, y = buffers
    n = shape_of(op.candidates)[-1]
    end = code.size(n)

    def shared(a: tuple[Value, Value], b: tuple[Value, Value]) -> Value:
        """How long the part is that two lines have in common."""
        length = minimum(a[1], b[1]) - maximum(a[0], b[0])
        return maximum(length, length.like(0.0))

    def box(row: Value, k: Index) -> tuple[tuple[Value, Value], tuple[Value, Value], Value]:
        """Its sides, and its area."""
        low, left, high, right = (boxes[row, k, side] for side in range(4))
        return (low, high), (left, right), (high - low) * (right - left)

    with code.grid(rows, n * 64) as row:
        limit, ratio, kept = most[row, 0], iou[row, 0], code.cell(code.index(0))
        with code.loop(0, end, name="k") as k:
            counts = candidates[row, k] & (kept.value.as_integer(i64) < limit)
            height, width, area = box(row, k)
            free = code.cell(counts)
            with code.loop(0, select(counts, kept.value, 0), name="j") as j:
                other_height, other_width, other_area = box(row, y[row, j].as_index())
                common = shared(other_height, height) * shared(other_width, width)
                union = other_area + area - common
                free.value = free.value & (((common > ratio * union) & (union > 0.0)) ^ 1)
            with code.when(free.value):
                y[row, kept.value] = k.as_integer(i64)
                kept.value = kept.value + 1
        with code.loop(kept.value, end, name="rest") as rest:
            y[row, rest] = code.index(end).as_integer(i64)

"""Non-maximum suppression: drop boxes that overlap boxes with higher scores, in each row."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.ir import i64
from dlc.passes.library_kernels.builder import Buffer, KernelBuilder
from dlc.passes.library_kernels.values import Index, KernelValue, maximum, minimum, select
from dlc.shapes.dims import Size


def non_max_suppression(builder: KernelBuilder, op: dl.SuppressOverlapsOp, rows: Size, buffers: Sequence[Buffer]) -> None:
    """Select candidates that do not overlap previously selected boxes, up to the maximum number of boxes of a row."""
    boxes, candidates, max_selected, iou, y = buffers
    n = shape_of(op.candidates)[-1]
    end = builder.size(n)

    def overlap_length(a: tuple[KernelValue, KernelValue], b: tuple[KernelValue, KernelValue]) -> KernelValue:
        """Return the length of the overlap of two intervals."""
        length = minimum(a[1], b[1]) - maximum(a[0], b[0])
        return maximum(length, length.like(0.0))

    def box(row: KernelValue, k: Index) -> tuple[tuple[KernelValue, KernelValue], tuple[KernelValue, KernelValue], KernelValue]:
        """Return the vertical and the horizontal interval of a box, and its area."""
        low, left, high, right = (boxes[row, k, side] for side in range(4))
        return (low, high), (left, right), (high - low) * (right - left)

    with builder.grid(rows, n * 64) as row:
        limit, ratio, num_selected = max_selected[row, 0], iou[row, 0], builder.cell(builder.index(0))
        with builder.loop(0, end, name="k") as k:
            is_candidate = candidates[row, k] & (num_selected.value.as_integer(i64) < limit)
            height, width, area = box(row, k)
            is_selected = builder.cell(is_candidate)
            with builder.loop(0, select(is_candidate, num_selected.value, 0), name="j") as j:
                other_height, other_width, other_area = box(row, y[row, j].as_index())
                intersection = overlap_length(other_height, height) * overlap_length(other_width, width)
                union = other_area + area - intersection
                is_selected.value = is_selected.value & (((intersection > ratio * union) & (union > 0.0)) ^ 1)
            with builder.when(is_selected.value):
                y[row, num_selected.value] = k.as_integer(i64)
                num_selected.value = num_selected.value + 1
        with builder.loop(num_selected.value, end, name="rest") as unused:
            y[row, unused] = builder.index(end).as_integer(i64)

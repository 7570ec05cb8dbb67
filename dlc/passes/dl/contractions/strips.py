"""Strip-mine images, so that the intermediates of an algorithm stay in a cache."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.cost_model import WinogradCosts
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.ir import SSAValue


def split_into_strips(costs: WinogradCosts, count: int, item_bytes: int, shared_bytes: int) -> Sequence[tuple[int, int]]:
    """Return (start, length) of each strip of `count` rows of tiles, or images; empty if everything fits the cache.

    Args:
        item_bytes: The size of one row of tiles, or of one image.
        shared_bytes: The size of the data that each strip reads or updates again. It is also the minimum size of a strip.
    """
    if item_bytes * count <= max(costs.cached_bytes, 2 * shared_bytes):
        return ()
    max_size = max(1, max(costs.strip_bytes, shared_bytes) // item_bytes, -(-count // costs.max_strips))
    # Strips of equal size use the same kernel.
    step = next((size for size in range(max_size, max_size // 2, -1) if count % size == 0), max_size)
    return [(k, min(step, count - k)) for k in range(0, count, step)]


def slice_strip(build: DlBuilder, value: SSAValue, axis: int, start: int, size: int) -> SSAValue:
    """Slice `size` elements of an axis, from `start` on."""
    shape = shape_of(value)
    starts, limits = [0] * len(shape), list(shape)
    starts[axis], limits[axis] = start, start + size
    return build(SliceOp, value, starts=tuple(starts), limits=tuple(limits), strides=(1,) * len(shape))

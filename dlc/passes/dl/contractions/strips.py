"""Images in strips, so that what is between two steps of an algorithm stays in a cache."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.costs import Winograd
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.ir import SSAValue


def strips(costs: Winograd, count: int, each: int, shared: int) -> Sequence[tuple[int, int]]:
    """Where parts of `count` rows of tiles, or images, begin, and how many are in each; none where all stay in a cache.

    Bytes: `each` are those of one of them, `shared` those that each part reads or adds to again: it is no smaller than they
    are.
    """
    if each * count <= max(costs.cached_bytes, 2 * shared):
        return ()
    most = max(1, max(costs.strip_bytes, shared) // each, -(-count // costs.most_strips))
    # Strips of one size share their kernels.
    step = next((size for size in range(most, most // 2, -1) if count % size == 0), most)
    return [(k, min(step, count - k)) for k in range(0, count, step)]


def strip_of(b: Build, value: SSAValue, axis: int, start: int, size: int) -> SSAValue:
    """`size` places of an axis from `start` on."""
    shape = shape_of(value)
    starts, limits = [0] * len(shape), list(shape)
    starts[axis], limits[axis] = start, start + size
    return b(SliceOp, value, starts=tuple(starts), limits=tuple(limits), strides=(1,) * len(shape))

"""Tile sizes that divide extents evenly, or nearly so."""

from __future__ import annotations

from dlc.passes.tiling.loop_nests import SizedLoopNest

# Contiguous elements per load of a work-item of a device.
VECTOR_LOAD_ELEMENTS = 4
# Side of the square blocks that are transposed in registers, in elements.
TRANSPOSE_TILE_ELEMENTS = 8


def fitting_tile(nest: SizedLoopNest, d: int, max_size: int) -> int:
    """Return the largest legal tile up to `max_size` along a dimension.

    It divides the panel size of a packed operand. If an operand repeats each element n times, it is a multiple or a
    divisor of n.
    """
    max_size, panel, repeat_count = min(max_size, nest.extents[d]), nest.panel_sizes.get(d), nest.repeat_counts.get(d, 1)
    if panel is None and max_size >= repeat_count:
        return max_size - max_size % repeat_count
    return next(tile for tile in range(min(max_size, panel or repeat_count), 0, -1) if (panel or repeat_count) % tile == 0)


def balanced_tile(extent: int, limit: int) -> int:
    """Return the size of as few nearly equal tiles of up to `limit` as possible that cover `extent`."""
    return -(-extent // -(-extent // limit))


def vector_divisor_tile(extent: int, limit: int) -> int:
    """Return a tile like `divisor_tile`, preferably a multiple of the elements of a vector load."""
    width = VECTOR_LOAD_ELEMENTS
    multiples = (tile for tile in range(limit - limit % width, limit // 2, -width) if extent % tile == 0)
    return next(multiples, divisor_tile(extent, limit))


def divisor_tile(extent: int, limit: int) -> int:
    """Return the largest divisor of `extent` between half the limit and the limit; without one, a balanced tile."""
    if extent <= limit:
        return extent
    divisors = (tile for tile in range(limit, limit // 2, -1) if extent % tile == 0)
    return next(divisors, balanced_tile(extent, limit))

"""Choose the panel width of a contraction's packed weights.

A panel is as wide as the register tile: a whole number of vectors, unless one panel holds all channels. Of the widths
that leave registers for rows, the best one is chosen by three criteria, in this order:

1. the fewest vectors computed in total, padding included, weighted by the time that a tile waits for its
   accumulators if the rows do not fill it;
2. the nearest to the target's preferred width, and to two vectors for integers, whose products need registers;
3. the widest, which needs the fewest loads.

Exceptions:

- Few rows, as in a matrix-vector product: four vectors, if one tile has registers for all rows, since a second tile
  would read all weights again. With `decodes_weights` (weight-only quantization) this applies to a single row only.
- `sums_per_step`: the contraction needs additional accumulators in each step of the reduction, so a panel has only one
  vector per eight registers, and any number of rows shares packed weights. With 16 registers, a panel for several rows has
  one vector, so that a tile of four rows does not spill.
- Devices with work-groups: one panel of all channels, padded so that rows are aligned to vector loads of four
  elements, and long rows to memory lines.
"""

from __future__ import annotations

from dlc.target import Target

# Maximum panel width, in vectors.
_MAX_PANEL_VECTORS = 4
# On devices with work-groups: elements of a vector load and of a memory line; rows of at least this many elements are aligned
# to lines.
_VECTOR_LOAD_ELEMENTS, _MEMORY_LINE_ELEMENTS, _MIN_LONG_ROW_ELEMENTS = 4, 32, 512


def choose_panel_width(
    out_channels: int,
    rows: int,
    lanes: int,
    target: Target,
    row_extent: int = 0,
    is_integer: bool = False,
    decodes_weights: bool = False,
    sums_per_step: bool = False,
) -> int:
    """Return the number of output channels in one panel, for a contraction with `rows` rows of results.

    A tile has up to `row_extent` rows, such as the width of an image if its rows are not adjacent; 0 means `rows`.

    The module describes the rules. With `decodes_weights`, weights are quantized; with `sums_per_step`, the contraction needs
    additional accumulators in each step of the reduction.
    """
    if target.groups is not None:
        return _padded_row_elements(out_channels)
    if out_channels <= lanes:
        return out_channels
    vectors_per_eight_registers = target.vector_registers // 8
    if sums_per_step and rows > 1:
        vectors = vectors_per_eight_registers if target.vector_registers > 16 else 1
        return min(vectors * lanes, out_channels)
    costs = target.costs
    # A tile with few rows leaves registers free; wide panels use them to keep more loads of weights in flight.
    has_few_rows = (
        rows <= (1 if decodes_weights else costs.few_rows)
        and rows * _MAX_PANEL_VECTORS + min(rows, _MAX_PANEL_VECTORS) + 1 <= target.vector_registers
    )
    preferred_vectors = _MAX_PANEL_VECTORS if has_few_rows else 2 if is_integer else costs.panel_vectors
    max_vectors = _MAX_PANEL_VECTORS if target.vector_registers >= 32 or has_few_rows else 3
    if sums_per_step:
        max_vectors = min(max_vectors, vectors_per_eight_registers)

    # Products of few rows wait for memory rather than for the FMA latency, those of integers for their instructions.
    latency_rows = 0 if has_few_rows or is_integer else row_extent or rows

    def cost(vectors: int) -> tuple[float, int, int]:
        width = vectors * lanes
        # The last of several panels is padded with zeros, so it computes as many vectors as the others.
        computed_vectors = -(-out_channels // width) * vectors if out_channels > width else -(-out_channels // lanes)
        return (
            computed_vectors
            * (costs.single_vector_slowdown if vectors == 1 else _latency_slowdown(vectors, latency_rows, target)),
            abs(vectors - preferred_vectors),
            -vectors,
        )

    return min(min(range(1, max_vectors + 1), key=cost) * lanes, out_channels)


def _padded_row_elements(out_channels: int) -> int:
    """Return the elements of a row of weights on a device with work-groups, padded to vector loads or memory lines."""
    if out_channels % _VECTOR_LOAD_ELEMENTS == 0:
        return out_channels
    alignment = _MEMORY_LINE_ELEMENTS if out_channels >= _MIN_LONG_ROW_ELEMENTS else _VECTOR_LOAD_ELEMENTS
    return -(-out_channels // alignment) * alignment


def _latency_slowdown(vectors: int, rows: int, target: Target) -> float:
    """Return the time of a k iteration of all tiles that cover the rows, relative to that of their multiply-adds.

    The multiply-adds of a tile take at least the latency of one, because each k iteration adds to the same accumulators, and
    longer if they do not hide the latency of loads. With more than 16 registers, tiles are large enough.
    """
    costs = target.costs
    max_tile = max(1, (target.vector_registers - vectors - 1) // vectors)
    if target.vector_registers > 16 or rows == 0:
        return 1

    def tile_time(tile: int) -> float:
        """Return the multiply-adds for which there is time, of vectors, in a k iteration of a tile."""
        accumulators = tile * vectors
        slowdown = costs.exposed_latency_slowdown if accumulators < costs.latency_hiding_accumulators else 1
        return max(costs.independent_accumulators, accumulators) * slowdown

    def time(tile: int) -> float:
        """Return the time of tiles of `tile` rows, and of one of the remaining rows."""
        return rows // tile * tile_time(tile) + (tile_time(rows % tile) if rows % tile else 0)

    return min(map(time, range(1, max_tile + 1))) / (rows * vectors)

"""Choose the panel width of a contraction's packed weights."""

from __future__ import annotations

from dlc.target import Target

# The width of the widest panels, in vectors.
_MAX_PANEL_VECTORS = 4
# On devices: elements of a vector load, of a memory line, and of a row that is worth aligning to lines.
_VECTOR_LOAD_ELEMENTS, _MEMORY_LINE_ELEMENTS, _MIN_LONG_ROW_ELEMENTS = 4, 32, 512


def choose_panel_width(
    out_channels: int, rows: int, lanes: int, target: Target, decodes_weights: bool = False, sums_per_step: bool = False
) -> int:
    """Return the number of output channels in one panel, for a contraction with `rows` rows of results.

    A panel is a row of the register tile: whole vectors, except if one panel holds all channels. Of the widths that
    leave registers for rows, the one with the fewest computed vectors is chosen, then the one nearest two vectors, with
    which a tile has enough rows to hide the FMA latency with the fewest loads. Few rows, as in a matrix-vector product,
    use four vectors if one tile has registers for all of them: a second tile would read all weights again. With
    `decodes_weights` (weight-only quantization) only one row counts as few. With `sums_per_step` each step has
    accumulators of its own, and several rows find registers next to one vector of sixteen. On devices with work-groups
    one panel holds all channels, padded so that rows are aligned to vector loads of four elements, long ones to memory
    lines.
    """
    if target.groups is not None:
        multiple = (
            1
            if out_channels % _VECTOR_LOAD_ELEMENTS == 0
            else _MEMORY_LINE_ELEMENTS
            if out_channels >= _MIN_LONG_ROW_ELEMENTS
            else _VECTOR_LOAD_ELEMENTS
        )
        return -(-out_channels // multiple) * multiple
    if out_channels <= lanes:
        return out_channels
    if sums_per_step and rows > 1:
        return min(target.vector_registers // 16 * lanes, out_channels)
    costs = target.costs
    # A register tile of few rows has registers to spare: wide panels then keep more weight loads in flight.
    has_few_rows = (
        rows <= (1 if decodes_weights else costs.few_rows)
        and rows * _MAX_PANEL_VECTORS + min(rows, _MAX_PANEL_VECTORS) + 1 <= target.vector_registers
    )
    preferred_vectors = _MAX_PANEL_VECTORS if has_few_rows else 2
    widest = _MAX_PANEL_VECTORS if target.vector_registers >= 32 or has_few_rows else 3

    def cost(vectors: int) -> tuple[float, int, int]:
        width = vectors * lanes
        # Packing fills the last of several panels with zeros: it computes whole vectors like the others.
        computed = -(-out_channels // width) * vectors if out_channels > width else -(-out_channels // lanes)
        return computed * (costs.single_vector_slowdown if vectors == 1 else 1), abs(vectors - preferred_vectors), -vectors

    return min(min(range(1, widest + 1), key=cost) * lanes, out_channels)

"""How wide the panels are that the weights of a contraction are packed in."""

from __future__ import annotations

from dlc.target import Target

# The vectors of the widest panels.
_WIDE = 4
# Elements that an item reads at once, those of a line of memory, and of a row that is long beside it.
_PIECE, _LINE, _LONG = 4, 32, 512


def choose_panel(out_channels: int, rows: int, lanes: int, target: Target, expands: bool = False, sums: bool = False) -> int:
    """The number of output channels in one panel, for a contraction with `rows` rows of results.

    A panel is a row of the register tile: whole vectors, but that the last is ragged where one panel holds all channels. Of
    the widths that leave registers for rows it takes the one that computes the fewest vectors in all, then the one nearest
    two vectors, where a tile has enough rows to hide the latency of FMA with the fewest loads. Few rows, as in the product
    of a matrix and a vector, want four, where one tile has registers for all of them: a second one would read all weights
    again. Of weights that a tile `expands` first one row is few. Where each step has `sums` of its own, several rows find
    registers beside one vector of sixteen. Groups of items have tiles of a size of their own: one panel is all, with rows that
    begin where an item can read four elements at once, and long ones where lines of memory do.
    """
    if target.groups is not None:
        whole = 1 if out_channels % _PIECE == 0 else _LINE if out_channels >= _LONG else _PIECE
        return -(-out_channels // whole) * whole
    if out_channels <= lanes:
        return out_channels
    if sums and rows > 1:
        return min(target.vector_registers // 16 * lanes, out_channels)
    machine = target.machine
    # A register tile of few rows has registers to spare: wide panels then keep more of the stream of weights in flight.
    few = rows <= (1 if expands else machine.few_rows) and rows * _WIDE + min(rows, _WIDE) + 1 <= target.vector_registers
    wanted = _WIDE if few else 2
    widest = _WIDE if target.vector_registers >= 32 or few else 3

    def cost(vectors: int) -> tuple[float, int, int]:
        width = vectors * lanes
        # Packing fills the last of several panels with zeros: it computes whole vectors like the others.
        computed = -(-out_channels // width) * vectors if out_channels > width else -(-out_channels // lanes)
        return computed * (machine.single_vector if vectors == 1 else 1), abs(vectors - wanted), -vectors

    return min(min(range(1, widest + 1), key=cost) * lanes, out_channels)

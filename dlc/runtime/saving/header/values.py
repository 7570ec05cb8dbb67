"""Numbers, texts, sizes and places of a header, which was read as JSON: what is read is not trusted to be any."""

from __future__ import annotations

from typing import Any

from dlc.dims import Size, parse
from dlc.runtime.program.host_program import Place

# No polynomial that a program needs is longer; others could take for ever to read.
_LONGEST_SIZE = 1000


def count(value: Any) -> int:
    """A number of things; raises ValueError for anything else."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is no count")
    return value


def distance(value: Any) -> int:
    """A number of 64 bits with a sign, as of bytes forward or back; raises ValueError for anything else."""
    if type(value) is not int or not -(1 << 63) < value < 1 << 63:
        raise ValueError(f"{value!r} is no distance")
    return value


def text(value: Any) -> str:
    """A text; raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def plain(value: Size) -> int | str:
    """A size as it is written: a number, or the text of a polynomial."""
    return value if isinstance(value, int) else str(value)


def read_size(written: Any) -> Size:
    """The size that was written; what it is must be checked when it is known. Raises ValueError for what is none."""
    if not isinstance(written, str) or len(written) > _LONGEST_SIZE:
        return count(written)
    size = parse(written)
    if isinstance(size, int):
        return count(size)
    for factor in size.terms.values():
        distance(factor)
    return size


def place(written: Any) -> Place:
    """A slot and an offset; raises ValueError or TypeError for what is none."""
    slot, offset = written
    return count(slot), count(offset)

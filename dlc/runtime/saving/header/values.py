"""Validation of integers, strings, sizes and buffer references that were read from JSON."""

from __future__ import annotations

from typing import Any

from dlc.runtime.program.host_program import BufferRef
from dlc.shapes.dims import Size
from dlc.shapes.parsing import parse_size

# Real polynomials are shorter; malicious ones could take forever to parse.
_MAX_SIZE_CHARACTERS = 1000


def count(value: Any) -> int:
    """Return a non-negative i64; raise ValueError for anything else."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a count")
    return value


def distance(value: Any) -> int:
    """Return an i64; raise ValueError for anything else."""
    if type(value) is not int or not -(1 << 63) < value < 1 << 63:
        raise ValueError(f"{value!r} is not an i64")
    return value


def text(value: Any) -> str:
    """Return a string; raise ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def size_to_json(value: Size) -> int | str:
    """Return a size as an integer, or as the text of a polynomial."""
    return value if isinstance(value, int) else str(value)


def size_from_json(written: Any) -> Size:
    """Parse a size; its value must be checked when it is bound. Raises ValueError for invalid input."""
    if not isinstance(written, str) or len(written) > _MAX_SIZE_CHARACTERS:
        return count(written)
    size = parse_size(written)
    if isinstance(size, int):
        return count(size)
    for factor in size.terms.values():
        distance(factor)
    return size


def ref(written: Any) -> BufferRef:
    """Return a buffer reference; raise ValueError or TypeError for anything else."""
    slot, offset = written
    return count(slot), count(offset)

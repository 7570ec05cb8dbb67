"""Grids and source text of kernels, shared by code generation and artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlc.shapes.dims import Size
from dlc.shapes.polynomials import is_multiple


@dataclass(frozen=True)
class Grid:
    """The launch configuration of a function.

    Attributes:
        groups: The number of work-groups; it may depend on the kernel's size parameters.
        items: The number of work-items per group.
        local_bytes: The local memory of a work-group.
    """

    groups: Size
    items: int
    local_bytes: int = 0


# The alignment of buffers, and of arrays that do not share their region of the arena.
BUFFER_ALIGNMENT_BYTES = 64


def required_alignment(bytes: Size) -> int:
    """Return the alignment that kernels assume for an array of this many bytes; elements of sequences are contiguous."""
    return next(n for n in (BUFFER_ALIGNMENT_BYTES, 32, 16, 8, 4, 2, 1) if is_multiple(bytes, n))


class SourceChunks(Protocol):
    """A kernel's C source in chunks, definitions first; kernels may share chunks."""

    @property
    def chunks(self) -> Sequence[str]: ...


def program_text(kernels: Iterable[SourceChunks]) -> str:
    """Return the source of a program with several kernels; shared chunks occur once."""
    return "\n".join(dict.fromkeys(chunk for kernel in kernels for chunk in kernel.chunks))

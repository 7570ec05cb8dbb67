"""What is known of a kernel's text, as it is made and as compiled models keep it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlc.dims import Size, is_multiple


@dataclass(frozen=True)
class Grid:
    """Runs of one function: `groups` of them, in the kernel's sizes, each by `items` at once that share `local_bytes`."""

    groups: Size
    items: int
    local_bytes: int = 0


# Buffers begin at multiples of so many bytes, and so does what has a buffer, or a planned part of one, for itself.
BUFFER_START = 64


def start_of(bytes: Size) -> int:
    """Kernels expect an array of so many bytes at a multiple of this: elements of sequences lie side by side."""
    return next(n for n in (BUFFER_START, 32, 16, 8, 4, 2, 1) if is_multiple(bytes, n))


class TextInPieces(Protocol):
    """A kernel in a dialect of C: its text in pieces, definitions first, of which several kernels have some in common."""

    @property
    def pieces(self) -> Sequence[str]: ...


def program_text(kernels: Iterable[TextInPieces]) -> str:
    """The text of a program of several kernels; what they share is written once."""
    return "\n".join(dict.fromkeys(piece for kernel in kernels for piece in kernel.pieces))

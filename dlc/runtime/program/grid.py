"""Grids: the runs of a kernel's functions, as its text is made and as compiled models keep it."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dims import Size


@dataclass(frozen=True)
class Grid:
    """Runs of one function: `groups` of them, in the kernel's sizes, each by `items` at once that share `local_bytes`."""

    groups: Size
    items: int
    local_bytes: int = 0

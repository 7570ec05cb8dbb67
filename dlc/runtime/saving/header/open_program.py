"""Host programs whose sizes come with a call as JSON, and back: what is read is not trusted to be any."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from dlc.dims import Range, Size
from dlc.runtime.program.bounds import moved_slots
from dlc.runtime.program.host_program import Instruction, OpenLaunch, walk
from dlc.runtime.program.open_program import OpenProgram
from dlc.runtime.saving.header.instructions import from_json, to_json
from dlc.runtime.saving.header.values import count, plain, read_size, text

_Parts: TypeAlias = "tuple[Mapping[str, Range], tuple[tuple[Size, ...], ...], tuple[Instruction, ...], int, Mapping[str, str]]"


def open_to_json(host: OpenProgram) -> dict[str, Any]:
    """What of a program is not inputs, outputs and weights."""
    return {
        "ranges": ranges_to_json(host.ranges),
        "regions": [list(map(plain, members)) for members in host.regions],
        "instructions": to_json(host.instructions),
        "moving": host.moving,
        "equal": dict(host.equal),
    }


def open_from_json(written: Mapping[str, Any], kernels: Collection[str]) -> _Parts:
    """Ranges, regions, instructions, how many slots they move, and equal sizes; raises ValueError, TypeError or KeyError for
    what are none, or not of these kernels."""
    regions = tuple(tuple(map(read_size, members)) for members in written["regions"])
    if not all(regions):
        raise ValueError("a region of the arena without a size")
    instructions = from_json(written["instructions"], is_open=True)
    for instruction, _ in walk(instructions):
        if isinstance(instruction, OpenLaunch) and instruction.kernel not in {None, *kernels}:
            raise ValueError(f"a launch of {instruction.kernel}, which is no kernel")
    moving, moved = count(written["moving"]), len(set(moved_slots(instructions)))
    if moving > moved:
        raise ValueError(f"{moving} slots that change, of which loops set {moved}")
    equal = {text(a): text(b) for a, b in dict(written["equal"]).items()}
    return ranges_from_json(written["ranges"]), regions, instructions, moving, equal


def ranges_to_json(ranges: Mapping[str, Range]) -> dict[str, Any]:
    """The ends of each range."""
    return {name: [r.low, r.high] for name, r in ranges.items()}


def ranges_from_json(written: Mapping[str, Any]) -> dict[str, Range]:
    """Raises ValueError, TypeError or AttributeError for what are none."""
    return {text(name): Range(count(low), None if high is None else count(high)) for name, (low, high) in written.items()}

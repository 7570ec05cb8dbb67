"""Host programs whose sizes come with a call as JSON, and back: what is read is not trusted to be any."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from dlc.dims import Range, Size, parse
from dlc.runtime.host_format import count, place, text
from dlc.runtime.open_program import OpenLaunch, OpenProgram

# No polynomial that a program needs is longer; others could take for ever to read.
_LONGEST_SIZE = 1000

_Parts: TypeAlias = "tuple[Mapping[str, Range], tuple[tuple[Size, ...], ...], tuple[OpenLaunch, ...]]"


def plain(value: Size) -> int | str:
    """A size as it is written: a number, or the text of a polynomial."""
    return value if isinstance(value, int) else str(value)


def read_size(written: Any) -> Size:
    """The size that was written; what it is must be checked when it is known. Raises ValueError for what is none."""
    if isinstance(written, str) and len(written) <= _LONGEST_SIZE:
        return parse(written)
    return count(written)


def open_to_json(host: OpenProgram) -> dict[str, Any]:
    """What of a program is not inputs, outputs and weights."""
    launches = [[launch.kernel, launch.arguments, list(map(plain, launch.numbers))] for launch in host.launches]
    return {
        "ranges": ranges_to_json(host.ranges),
        "regions": [list(map(plain, members)) for members in host.regions],
        "launches": launches,
    }


def open_from_json(written: Mapping[str, Any], kernels: Collection[str]) -> _Parts:
    """Ranges, regions and launches; raises ValueError, TypeError or KeyError for what are none, or not of these kernels."""
    regions = tuple(tuple(map(read_size, members)) for members in written["regions"])
    if not all(regions):
        raise ValueError("a region of the arena without a size")
    launches: list[OpenLaunch] = []
    for kernel, arguments, numbers in written["launches"]:
        if kernel is not None and kernel not in kernels:
            raise ValueError(f"a launch of {kernel}, which is no kernel")
        launches.append(OpenLaunch(kernel, tuple(map(place, arguments)), tuple(map(read_size, numbers))))
    return ranges_from_json(written["ranges"]), regions, tuple(launches)


def ranges_to_json(ranges: Mapping[str, Range]) -> dict[str, Any]:
    """The ends of each range."""
    return {name: [r.low, r.high] for name, r in ranges.items()}


def ranges_from_json(written: Mapping[str, Any]) -> dict[str, Range]:
    """Raises ValueError, TypeError or AttributeError for what are none."""
    return {text(name): Range(count(low), None if high is None else count(high)) for name, (low, high) in written.items()}

"""Serialization of dynamic-shape programs. Input is untrusted and validated."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias, get_args

from dlc.dims import Dim, Relation, Size, SizeRange
from dlc.guards import Guard
from dlc.runtime.program.bounds import loop_set_slots
from dlc.runtime.program.dynamic_program import DynamicProgram
from dlc.runtime.program.host_program import DynamicLaunch, Instruction, walk
from dlc.runtime.saving.header.instructions import from_json, to_json
from dlc.runtime.saving.header.values import count, size_from_json, size_to_json, text

_DynamicFields: TypeAlias = tuple[
    Mapping[str, SizeRange],
    tuple[tuple[Size, ...], ...],
    tuple[Instruction, ...],
    int,
    Mapping[str, str],
    tuple[Guard, ...],
]


def dynamic_fields_to_json(host: DynamicProgram) -> dict[str, Any]:
    """Return the fields of a program except inputs, outputs and weights."""
    return {
        "ranges": ranges_to_json(host.ranges),
        "regions": [list(map(size_to_json, sizes)) for sizes in host.regions],
        "instructions": to_json(host.instructions),
        "loop_slots": host.loop_slots,
        "equal": dict(host.equal),
        "guards": list(map(guard_to_json, host.guards)),
    }


def dynamic_fields_from_json(written: Mapping[str, Any], kernels: Collection[str]) -> _DynamicFields:
    """Read ranges, regions, instructions, the number of loop slots, equal sizes, and guards.

    Raises ValueError, TypeError or KeyError for invalid input, and for launches of other kernels.
    """
    regions = tuple(tuple(map(size_from_json, sizes)) for sizes in written["regions"])
    if not all(regions):
        raise ValueError("a region of the arena without a size")
    instructions = from_json(written["instructions"], is_dynamic=True)
    for instruction, _ in walk(instructions):
        if isinstance(instruction, DynamicLaunch) and instruction.kernel not in {None, *kernels}:
            raise ValueError(f"a launch of {instruction.kernel}: there is no such kernel")
    loop_slots, num_set_slots = count(written["loop_slots"]), len(set(loop_set_slots(instructions)))
    if loop_slots > num_set_slots:
        raise ValueError(f"expected up to {num_set_slots} loop slots, which loops set; got {loop_slots}")
    equal = {text(a): text(b) for a, b in dict(written["equal"]).items()}
    guards = tuple(map(guard_from_json, written["guards"]))
    return ranges_from_json(written["ranges"]), regions, instructions, loop_slots, equal, guards


def guard_to_json(guard: Guard) -> list[Any]:
    """Return a guard's size, relation and origin."""
    return [size_to_json(guard.size), guard.relation, guard.origin]


def guard_from_json(written: Any) -> Guard:
    """Read a guard. Raises ValueError or TypeError for invalid input."""
    size, relation, origin = written
    if relation not in get_args(Relation):
        raise ValueError(f"a guard with the relation {relation!r}")
    return Guard(Dim.lift(size_from_json(size)), relation, text(origin))


def ranges_to_json(ranges: Mapping[str, SizeRange]) -> dict[str, Any]:
    """Return the minimum and maximum of each range."""
    return {name: [r.low, r.high] for name, r in ranges.items()}


def ranges_from_json(written: Mapping[str, Any]) -> dict[str, SizeRange]:
    """Read ranges. Raises ValueError, TypeError or AttributeError for invalid input."""
    return {text(name): SizeRange(count(low), None if high is None else count(high)) for name, (low, high) in written.items()}

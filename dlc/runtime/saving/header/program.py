"""Serialization of host programs. Input is untrusted and validated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from dlc.arrays import TensorInfo
from dlc.runtime.collectives.mesh import Mesh, RankPlacement
from dlc.runtime.program.host_program import HostProgram, KernelSignature
from dlc.runtime.saving.header.instructions import from_json, to_json
from dlc.runtime.saving.header.tensor_info import info_from_json, info_to_json
from dlc.runtime.saving.header.values import count, size_from_json, size_to_json, text
from dlc.shapes.dims import Dim, Relation
from dlc.shapes.guards import Guard
from dlc.shapes.ranges import SizeRange


def program_to_json(host: HostProgram) -> dict[str, Any]:
    """Return all fields of a program except its weights."""
    return {
        "inputs": list(map(info_to_json, host.inputs)),
        "outputs": list(map(info_to_json, host.outputs)),
        "instructions": to_json(host.instructions),
        "arena": host.arena_bytes,
        "regions": [list(map(size_to_json, sizes)) for sizes in host.regions],
        "loop_slots": host.loop_slots,
        "ranges": ranges_to_json(host.ranges),
        "guards": list(map(guard_to_json, host.guards)),
        "donors": list(host.donors.items()),
        "placement": None if host.placement is None else placement_to_json(host.placement),
    }


def program_from_json(
    written: Mapping[str, Any], weights: tuple[TensorInfo, ...], kernels: Mapping[str, KernelSignature]
) -> HostProgram:
    """Read a program with these weights and kernels.

    Raises ModelError, ValueError, TypeError or KeyError for invalid input, and for launches of other kernels.
    """
    inputs, outputs = (tuple(map(info_from_json, written[key])) for key in ("inputs", "outputs"))
    regions = tuple(tuple(map(size_from_json, sizes)) for sizes in written["regions"])
    if not all(regions):
        raise ValueError("a region of the arena without a size")
    return HostProgram(
        inputs,
        outputs,
        weights,
        from_json(written["instructions"], kernels),
        count(written["arena"]),
        regions,
        count(written["loop_slots"]),
        ranges_from_json(written["ranges"]),
        tuple(map(guard_from_json, written["guards"])),
        {count(output): count(donor) for output, donor in written["donors"]},
        None if written["placement"] is None else placement_from_json(*written["placement"]),
    )


def placement_to_json(placement: RankPlacement) -> list[Any]:
    """Return the axes of the mesh, the rank, and the shardings."""
    return [list(placement.mesh.axes), placement.rank, list(placement.shardings)]


def placement_from_json(axes: Any, rank: Any, shardings: Any) -> RankPlacement:
    """Read a placement. Raises ValueError or TypeError for invalid input."""
    mesh = Mesh(tuple((text(name), count(size)) for name, size in axes))
    if len(mesh.sizes) < len(mesh.axes) or mesh.size < 1 or (rank is not None and count(rank) >= mesh.size):
        raise ValueError(f"rank {rank} of the mesh {mesh}")
    return RankPlacement(mesh, rank, tuple(map(text, shardings)))


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

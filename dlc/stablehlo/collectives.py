"""Manual computations: `sdy.manual_computation`, the form of `jax.shard_map`, and the collectives in its body.

Collectives name groups of device ids, `replica_groups = dense<[[0, 2], [1, 3]]>`. These are converted to the mesh axes with the
same groups; ids are numbered row-major over the axes of the mesh.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from dlc.dialects import dl
from dlc.dialects.dl.base import rank_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.distributed.sharding import spec_attribute
from dlc.errors import UnsupportedError
from dlc.ir import SSAValue
from dlc.runtime.collectives.mesh import Mesh
from dlc.stablehlo.node import StableHloNode
from dlc.stablehlo.shardings import parse_sharding
from dlc.stablehlo.syntax import Dense

MANUAL_COMPUTATION = "sdy.manual_computation"
_COMBINATORS = {"add": "sum", "maximum": "max", "minimum": "min", "or": "max", "and": "min"}


def mesh_of(attributes: Mapping[str, Any], where: str) -> Mesh:
    """Return the mesh of a manual computation. Raises UnsupportedError unless all of its axes are manual."""
    mesh = Mesh(tuple((name, int(size)) for name, size in attributes["mesh"].items()))
    if set(attributes["manual_axes"]) != mesh.sizes.keys():
        raise UnsupportedError(f"{where}: manual axes {attributes['manual_axes']}; expected all axes of the mesh {mesh}")
    return mesh


def to_shards(build: DlBuilder, mesh: Mesh, x: SSAValue, sharding: str, where: str) -> SSAValue:
    """Return this rank's shard of an operand of a manual computation."""
    spec = spec_attribute([axes or () for axes in parse_sharding(sharding, rank_of(x), where)])
    return build(dl.ToShardsOp, build(dl.ShardOp, x, spec=spec), spec=spec, mesh=str(mesh))


def from_shards(build: DlBuilder, mesh: Mesh, x: SSAValue, sharding: str, where: str) -> SSAValue:
    """Return the global array of the shards that a manual computation returns."""
    spec = spec_attribute([axes or () for axes in parse_sharding(sharding, rank_of(x), where)])
    return build(dl.FromShardsOp, x, spec=spec, mesh=str(mesh))


def _groups(node: StableHloNode, mesh: Mesh) -> dict[str, Any]:
    """Return the mesh axes of a collective and the size of its groups."""
    groups = _rows(node, "replica_groups")
    names = [name for name, _ in mesh.axes]
    for count in range(1, len(names) + 1):
        for axes in combinations(names, count):
            if {mesh.group(rank, axes).ranks for rank in range(mesh.size)} == set(groups):
                return {"axes": " ".join(axes), "group_size": mesh.shard_count(axes)}
    raise node.unsupported(f"replica_groups {groups} match no axes of the mesh {mesh}")


def _rows(node: StableHloNode, name: str) -> list[tuple[int, ...]]:
    """Return the rows of a matrix of device ids."""
    value = node.get(name)
    text = value.text if isinstance(value, Dense) else str(value)
    return [tuple(map(int, re.findall(r"\d+", row))) for row in re.findall(r"\[([\d, ]+)\]", text)]


def _combinator(node: StableHloNode) -> str:
    names = [op.name.removeprefix("stablehlo.") for op in node.op.regions[0].ops[:-1]]
    if len(names) != 1 or names[0] not in _COMBINATORS:
        raise node.unsupported(f"a reduction by {', '.join(names)}; expected one of {', '.join(_COMBINATORS)}")
    return _COMBINATORS[names[0]]


def _all_reduce(node: StableHloNode, mesh: Mesh) -> SSAValue:
    return node.build(dl.AllReduceOp, node[0], **_groups(node, mesh), combine=_combinator(node))


def _reduce_scatter(node: StableHloNode, mesh: Mesh) -> SSAValue:
    axis = int(node.get("scatter_dimension"))
    return node.build(dl.ReduceScatterOp, node[0], **_groups(node, mesh), axis=axis, combine=_combinator(node))


def _all_gather(node: StableHloNode, mesh: Mesh) -> SSAValue:
    return node.build(dl.AllGatherOp, node[0], **_groups(node, mesh), axis=int(node.get("all_gather_dim")))


def _all_to_all(node: StableHloNode, mesh: Mesh) -> SSAValue:
    split, concat = int(node.get("split_dimension")), int(node.get("concat_dimension"))
    return node.build(dl.AllToAllOp, node[0], **_groups(node, mesh), split_axis=split, concat_axis=concat)


def _permute(node: StableHloNode, mesh: Mesh) -> SSAValue:
    routes = [(source, target) for source, target in _rows(node, "source_target_pairs")]
    for axis, size in mesh.axes:
        positions = sorted({(mesh.position(source, [axis]), mesh.position(target, [axis])) for source, target in routes})
        groups = {mesh.group(rank, [axis]).ranks for rank in range(mesh.size)}
        if {(group[a], group[b]) for group in groups for a, b in positions} == set(routes):
            pairs = tuple(position for pair in positions for position in pair)
            return node.build(dl.PermuteOp, node[0], axes=axis, group_size=size, pairs=pairs)
    raise node.unsupported(f"source_target_pairs {routes} match no axis of the mesh {mesh}")


def _partition_id(node: StableHloNode, mesh: Mesh) -> SSAValue:
    axes = " ".join(name for name, _ in mesh.axes)
    return node.build(dl.CastOp, node.build(dl.AxisIndexOp, axes=axes, group_size=mesh.size), to=node.element)


COLLECTIVES: Mapping[str, Callable[[StableHloNode, Mesh], SSAValue]] = {
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_gather": _all_gather,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_permute": _permute,
    "stablehlo.partition_id": _partition_id,
}

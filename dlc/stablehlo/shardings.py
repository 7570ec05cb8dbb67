"""Shardings of Shardy's `sdy` dialect, which JAX prints: annotations of arguments, results and values.

#sdy.sharding<@mesh, [{"data"}, {}, {?}]>    axis 0 is split over `data`, axis 1 is whole, axis 2 is left to propagation
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.distributed.sharding import SHARDING, PartialSpec, spec_attribute
from dlc.errors import ModelError, UnsupportedError
from dlc.ir import ArrayAttr, Attribute, DictionaryAttr, SSAValue
from dlc.stablehlo.node import StableHloNode

_AXES = re.compile(r"\[((?:\s*\{[^{}]*\}\s*\w*\s*,?)*)\s*\]")
_AXIS = re.compile(r"\{([^{}]*)\}")


def mesh_axes(text: str) -> dict[str, str]:
    """Return the axes of a mesh, `["data"=2]`, and their sizes."""
    return dict(re.findall(r'"([^"]*)"\s*=\s*(\d+)', text))


def require_known_mesh(sharding: str, meshes: Mapping[str, Mapping[str, str]], where: str) -> None:
    """Raise ModelError if a sharding names an unknown mesh, or an unknown axis of its mesh."""
    mesh = re.search(r"@[\w.$-]+", sharding)
    if mesh is None:
        return
    axes, problem = meshes.get(mesh[0]), f"{where}: the sharding {sharding}"
    if axes is None:
        raise ModelError(f"{problem}: {mesh[0]} is not a mesh of the module; its meshes are {', '.join(meshes) or 'none'}")
    if unknown := [name for name in re.findall(r'"([^"]*)"', sharding) if name not in axes]:
        raise ModelError(f"{problem}: {unknown[0]!r} is not an axis of {mesh[0]}; its axes are {', '.join(axes) or 'none'}")


def parse_sharding(text: str, rank: int, where: str) -> PartialSpec:
    """Return the spec of a sharding of a tensor of this rank.

    `{"data", ?}` splits an axis only over the mesh axes that it names. Priorities are ignored. Raises
    UnsupportedError for parts of mesh axes and for partial sums, and ModelError for malformed text.
    """
    if unsupported := re.search(r'"\s*:\s*\(|unreduced|maximal|device_ids', text):
        raise UnsupportedError(
            f"{where}: the sharding {text}: {unsupported[0]!r} is not supported; expected names of mesh axes"
        )
    match = _AXES.search(text)
    axes = None if match is None else _AXIS.findall(match[1])
    if axes is None or len(axes) != rank:
        raise ModelError(f"{where}: the sharding {text}: expected one entry in braces for each of {rank} axes")
    return [_axis_spec(axis) for axis in axes]


def _axis_spec(axis: str) -> tuple[str, ...] | None:
    names = tuple(re.findall(r'"([^"]*)"', axis))
    return None if not names and "?" in axis else names


def sharding_constraint(node: StableHloNode) -> SSAValue:
    """Convert `sdy.sharding_constraint` to `dl.shard`."""
    spec = parse_sharding(str(node.get("sharding")), len(shape_of(node[0])), node.where)
    return node.build(dl.ShardOp, node[0], spec=spec_attribute(spec))


def store(
    names: ArrayAttr[DictionaryAttr], attributes: Sequence[Mapping[str, Any]], ranks: Sequence[int], where: str
) -> ArrayAttr[DictionaryAttr]:
    """Return the attributes of the entry's arguments or results, with their shardings added."""
    return ArrayAttr(
        [
            DictionaryAttr({**named.data, **_stored(given.get("sdy.sharding"), rank, where)})
            for named, given, rank in zip(names, attributes, ranks, strict=True)
        ]
    )


def _stored(text: object, rank: int, where: str) -> dict[str, Attribute]:
    return {} if text is None else {SHARDING: spec_attribute(parse_sharding(str(text), rank, where))}

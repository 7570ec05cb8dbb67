"""Placements of PyTorch's DTensor as partition specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc.distributed.partition_spec import P
from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.runtime.collectives.mesh import Mesh


def spec_of_placements(placements: P | Sequence[Any], mesh: Mesh, rank: int, name: str) -> P:
    """Return the spec of a tensor with `rank` axes for DTensor's placements, one per mesh axis; a `P` is returned unchanged.

        [Shard(0), Replicate()] on the mesh data=2,model=4    →    P("data", None)

    Raises UnsupportedError for placements other than `Shard` and `Replicate`, DTypeError for a wrong number of them, and
    ShapeError for an axis that the tensor does not have.
    """
    if isinstance(placements, P):
        return placements
    if len(placements) != len(mesh.axes):
        raise DTypeError(
            f"{name}: {len(placements)} placements on the mesh {mesh}; expected one for each of its {len(mesh.axes)} axes"
        )
    axes: list[tuple[str, ...]] = [()] * rank
    for (mesh_axis, _), placement in zip(mesh.axes, placements, strict=True):
        # By the name of the class, since PyTorch is optional.
        kind = type(placement).__name__
        if kind == "Replicate":
            continue
        if kind != "Shard":
            raise UnsupportedError(f"{name}: the placement {placement} is not supported; expected Shard or Replicate")
        if not -rank <= placement.dim < rank:
            raise ShapeError(
                f"{name}: Shard(dim={placement.dim}) of a tensor with {rank} axes; expected a dim from {-rank} to {rank - 1}"
            )
        axes[placement.dim] = (*axes[placement.dim], mesh_axis)
    return P(*axes)

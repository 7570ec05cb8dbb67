"""Sharding annotations inside of traced functions."""

from __future__ import annotations

from typing import Any

from dlc.dialects import dl
from dlc.dialects.dl.distributed.sharding import spec_attribute
from dlc.distributed.local_mesh import current_local_mesh
from dlc.distributed.partition_spec import P
from dlc.errors import DlcError, ShapeError
from dlc.frontend.pytree import flatten, unflatten
from dlc.frontend.trace import Tracer, with_user_line
from dlc.numpy.apply import apply


def shard(x: Any, spec: P) -> Any:
    """Return `x` with an annotation: on a mesh, its axes are split as `spec` says; axes that it omits are left to propagation.

    Applies to every leaf of a pytree. Without a mesh, and for arrays outside of a compiled function, it is the identity. Raises
    ShapeError for a spec with more entries than axes, and DlcError inside of dlc.shard_map, whose arrays are shards already.
    """
    if current_local_mesh() is not None:
        raise with_user_line(DlcError("dlc.shard: called inside of a function that dlc.shard_map runs on shards"))
    leaves, tree = flatten(x)
    return unflatten(tree, iter([_shard(leaf, spec) for leaf in leaves]))


def _shard(x: Any, spec: P) -> Any:
    if not isinstance(x, Tracer):
        return x
    if len(spec.axes) > x.ndim:
        raise ShapeError(f"dlc.shard: {spec} has {len(spec.axes)} entries for an array of rank {x.ndim}")
    return apply(dl.ShardOp, x, spec=spec_attribute(spec.padded(x.ndim, None)))

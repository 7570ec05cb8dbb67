"""Arrays whose shards belong to the ranks of a mesh."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from dlc.arrays import format_type, to_numpy
from dlc.dialects.dl.distributed.sharding import PartialSpec
from dlc.distributed.partition_spec import P
from dlc.errors import DTypeError
from dlc.frontend.pytree import flatten, unflatten
from dlc.passes.sharding.propagate import Spec, require_valid_spec
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.shards import collect_shards, shard_of
from dlc.runtime.collectives.start import rank_on, transport_of


class DistributedArray:
    """A global array of which each rank of a mesh has one shard. Functions compiled for the mesh take and return them.

    Attributes:
        shard: This rank's part, a NumPy array.
        spec: The mesh axes over which each axis is split.
        mesh: The mesh.
        shape, dtype: Those of the global array.
    """

    def __init__(self, shard: Any, spec: Spec, mesh: Mesh) -> None:
        self.shard = shard
        self.spec = spec
        self.mesh = mesh

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([size * self.mesh.shard_count(axes) for size, axes in zip(self.shard.shape, self.spec, strict=True)])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.shard.dtype

    @property
    def ndim(self) -> int:
        return len(self.spec)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise DTypeError(f"{self!r} has one shard on this rank; call dlc.collect on all ranks to get the global array")

    def __repr__(self) -> str:
        return f"DistributedArray({format_type(self.dtype, self.shape)}, {P(*self.spec)}, mesh {self.mesh})"


def distribute(x: Any, spec: P, mesh: Mesh) -> Any:
    """Return the global array `x` as a `DistributedArray`: every rank copies its shard. Applies to all leaves of a pytree.

    All ranks pass the same array. Axes that `spec` omits are replicated. Raises ShapeError for a spec that does not fit.
    """
    leaves, tree = flatten(x)
    return unflatten(tree, iter([_distributed(to_numpy(leaf), spec, mesh) for leaf in leaves]))


def _distributed(array: Any, spec: P, mesh: Mesh) -> DistributedArray:
    padded = spec.padded(array.ndim, ())
    require_valid_spec(mesh, array.shape, padded, "dlc.distribute")
    full = replicate_unconstrained(padded)
    # A copy: a donated shard is overwritten, and a view would keep the global array in memory.
    return DistributedArray(shard_of(mesh, rank_on(mesh), array, full).copy(), full, mesh)


def collect(x: Any) -> Any:
    """Return the global arrays of a pytree of `DistributedArray`s, on every rank; other leaves are returned as they are.

    All ranks call it in the same order.
    """
    leaves, tree = flatten(x)
    return unflatten(tree, iter([collected(leaf) if isinstance(leaf, DistributedArray) else leaf for leaf in leaves]))


def collected(array: DistributedArray) -> Any:
    """Return the global array of the shards of all ranks."""
    transport = transport_of(array.mesh)
    if transport is None:
        return array.shard
    return collect_shards(transport, array.shard, array.spec, f"dlc.collect: {format_type(array.dtype, array.shape)}")


def local_shard(x: Any, spec: Spec, mesh: Mesh) -> Any:
    """Return this rank's shard of an argument: a global array, or a DistributedArray of any spec and mesh."""
    if isinstance(x, DistributedArray):
        if x.mesh == mesh and x.spec == spec:
            return x.shard
        x = collected(x)
    return shard_of(mesh, rank_on(mesh), x, spec)


def replicate_unconstrained(spec: PartialSpec) -> Spec:
    """Return a spec with unconstrained axes replicated."""
    return tuple(axes or () for axes in spec)

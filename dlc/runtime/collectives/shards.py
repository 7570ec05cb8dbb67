"""Shards of arrays: split a global array into the parts of the ranks, and assemble it from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.transport import Transport


def shard_slices(mesh: Mesh, rank: int, shape: Sequence[int], spec: Sequence[tuple[str, ...]]) -> tuple[slice, ...]:
    """Return the slices of a global array that are the shard of a rank."""
    slices: list[slice] = []
    for size, axes in zip(shape, spec, strict=True):
        length, position = size // mesh.shard_count(axes), mesh.position(rank, axes)
        slices.append(slice(position * length, (position + 1) * length))
    return tuple(slices)


def shard_of(mesh: Mesh, rank: int, array: NDArray[Any], spec: Sequence[tuple[str, ...]]) -> NDArray[Any]:
    """Return a rank's shard of a global array, contiguous; the array itself if it is replicated."""
    if not any(spec):
        return array
    return np.ascontiguousarray(array[shard_slices(mesh, rank, array.shape, spec)]).reshape(
        [size // mesh.shard_count(axes) for size, axes in zip(array.shape, spec, strict=True)]
    )


def assemble(mesh: Mesh, shards: Sequence[NDArray[Any]], spec: Sequence[tuple[str, ...]]) -> NDArray[Any]:
    """Return the global array from the shards of all ranks, in the order of ranks."""
    shape = [size * mesh.shard_count(axes) for size, axes in zip(shards[0].shape, spec, strict=True)]
    result = np.empty(shape, shards[0].dtype)
    for rank, shard in enumerate(shards):
        result[shard_slices(mesh, rank, shape, spec)] = shard
    return result


def collect_shards(transport: Transport, shard: NDArray[Any], spec: Sequence[tuple[str, ...]], label: str) -> NDArray[Any]:
    """Return the global array of the shards of all ranks, which all call this."""
    if not any(spec):
        return shard
    mesh = transport.mesh
    shards = transport.all_gather(np.ascontiguousarray(shard), [name for name, _ in mesh.axes], label)
    return assemble(mesh, list(shards), spec)

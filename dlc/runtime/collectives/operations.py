"""The collective ops of `dl` on arrays: relay out axes, widen dtypes, and move the data by the transport of the rank."""

from __future__ import annotations

import numpy as np

from dlc.runtime.collectives.shards import collect_shards, shard_of
from dlc.runtime.collectives.transport import Array, Combinator, current_transport


def all_reduce(
    x: Array, *, axes: str, group_size: int, combine: Combinator, label: str, request: int | None = None
) -> tuple[Array]:
    """`dl.all_reduce`."""
    if group_size == 1:
        return (x,)
    total = current_transport().all_reduce(_widened(x), axes.split(), combine, label)
    return (total.astype(x.dtype, copy=False),)


def reduce_scatter(
    x: Array, *, axes: str, group_size: int, axis: int, combine: Combinator, label: str, request: int | None = None
) -> tuple[Array]:
    """`dl.reduce_scatter`."""
    if group_size == 1:
        return (x,)
    total = current_transport().reduce_scatter(_parts(_widened(x), group_size, axis), axes.split(), combine, label)
    return (total.astype(x.dtype, copy=False),)


def all_gather(x: Array, *, axes: str, group_size: int, axis: int, label: str, request: int | None = None) -> tuple[Array]:
    """`dl.all_gather`."""
    if group_size == 1:
        return (x,)
    return (_joined(current_transport().all_gather(_contiguous(x), axes.split(), label), axis),)


def all_to_all(
    x: Array, *, axes: str, group_size: int, split_axis: int, concat_axis: int, label: str, request: int | None = None
) -> tuple[Array]:
    """`dl.all_to_all`."""
    if group_size == 1:
        return (x,)
    return (_joined(current_transport().all_to_all(_parts(x, group_size, split_axis), axes.split(), label), concat_axis),)


def wait(*buffers: Array, axes: str, group_size: int, request: int, label: str) -> tuple[Array, ...]:
    """Wait for a collective that native code has started; the functions above return when it is complete."""
    current_transport().raise_stored_error(label)
    return ()


def progress(*, axes: str, group_size: int, request: int, label: str) -> tuple[Array, ...]:
    """Make progress on collectives that native code has started."""
    return ()


def permute(x: Array, *, axes: str, group_size: int, pairs: str, label: str, request: int | None = None) -> tuple[Array]:
    """`dl.permute`."""
    routes = permute_routes(pairs)
    if group_size == 1:
        return (x if routes else np.zeros_like(x),)
    return (current_transport().permute(_contiguous(x), axes, routes, label),)


def permute_routes(pairs: str) -> list[tuple[int, int]]:
    """Return the pairs (source, target) of positions of `dl.permute`, from its setting."""
    positions = [int(position) for position in pairs.split(",") if position]
    return list(zip(positions[::2], positions[1::2], strict=True))


def axis_index(*, axes: str, group_size: int, label: str) -> tuple[Array]:
    """`dl.axis_index`."""
    position = 0 if group_size == 1 else current_transport().group(axes.split()).position
    return (np.array(position, np.int64),)


def to_shards(x: Array, *, spec: str, is_split: bool, label: str) -> tuple[Array]:
    """`dl.to_shards`."""
    if not is_split:
        return (x,)
    transport = current_transport()
    return (shard_of(transport.mesh, transport.rank, x, _spec(spec)),)


def from_shards(x: Array, *, spec: str, is_split: bool, label: str) -> tuple[Array]:
    """`dl.from_shards`."""
    return (collect_shards(current_transport(), x, _spec(spec), label) if is_split else x,)


def _spec(text: str) -> list[tuple[str, ...]]:
    """Return the mesh axes of each axis of an array, from entries separated by semicolons."""
    return [tuple(axes.split()) for axes in text.split(";")]


def _widened(x: Array) -> Array:
    """Return 16-bit floats as f32, so that they are rounded once; other arrays are only made contiguous."""
    is_half_precision = x.dtype.itemsize == 2 and x.dtype.kind in "fV"
    return _contiguous(x.astype(np.float32) if is_half_precision else x)


def _contiguous(x: Array) -> Array:
    """Return a contiguous array of the same shape; NumPy's function adds an axis to one of rank 0."""
    return np.ascontiguousarray(x).reshape(x.shape)


def _parts(x: Array, count: int, axis: int) -> Array:
    """Return the parts of an array along an axis as axis 0 of a contiguous array."""
    shape = (*x.shape[:axis], count, x.shape[axis] // count, *x.shape[axis + 1 :])
    parts = x.reshape(shape)
    return np.ascontiguousarray(np.moveaxis(parts, axis, 0) if axis else parts)


def _joined(parts: Array, axis: int) -> Array:
    """Return the concatenation along an axis of the parts along axis 0."""
    moved = np.moveaxis(parts, 0, axis) if axis else parts
    shape = (*moved.shape[:axis], moved.shape[axis] * moved.shape[axis + 1], *moved.shape[axis + 2 :])
    return moved.reshape(shape)

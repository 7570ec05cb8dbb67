"""Sparse constants of TFLite files, as dense arrays.

    8×8, blocks of 4×4:  4 levels in the order (row block, column block, row, column), each dense or compressed sparse

The format is that of TACO (Kjolstad et al., The Tensor Algebra Compiler, 2017): a tree with one level per axis. A node of a
dense level has a child for each index; children of a compressed level are the entries `segments[node]` to
`segments[node + 1]` of `indices`. Leaves are the stored elements, in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.errors import ModelError
from dlc.frontend.tflite.flatbuffer import FlatbufferTable

_DENSE, _COMPRESSED = 0, 1
# Vectors of segments and indices, by the type code of their union.
_VECTOR_DTYPES = {1: "<i4", 2: "<u2", 3: "u1"}
# A small file must not expand to a large array. Sparse weights of real models store at least 1 % of the elements.
_MAX_ELEMENTS_PER_STORED_ELEMENT = 1000


@dataclass(frozen=True)
class Level:
    """A level of the tree: the size of a dense one; the segments and indices of a compressed one."""

    size: int = 0
    segments: Array | None = None
    indices: Array | None = None


@dataclass(frozen=True)
class TfliteSparsity:
    """The tree of a sparse tensor.

    Axes are numbered in the order of the tensor, followed by those inside of blocks; `order` is the axis of each level, and
    `block_axes` the axis of the tensor that each block axis divides.
    """

    order: tuple[int, ...]
    block_axes: tuple[int, ...]
    levels: Sequence[Level]

    def dense(self, elements: Array, shape: Sequence[int], description: str) -> Array:
        """Return the dense array of a shape with the stored elements. Raises ModelError if the tree does not fit them."""
        rank, count = len(shape), math.prod(shape)
        if sorted(self.order) != list(range(len(self.levels))) or len(self.levels) != rank + len(self.block_axes):
            raise ModelError(f"{description}: {len(self.levels)} levels in the order {list(self.order)} for {list(shape)}")
        if self.block_axes and not 0 <= min(self.block_axes) <= max(self.block_axes) < rank:
            raise ModelError(f"{description}: blocks along the axes {list(self.block_axes)} of {list(shape)}")
        if count > _MAX_ELEMENTS_PER_STORED_ELEMENT * (elements.size + 1):
            raise ModelError(f"{description}: {elements.size} stored elements are too few for the shape {list(shape)}")
        # A block axis must be dense, and must follow the axis that it divides.
        level_of = self.order.index
        if any(
            level_of(rank + k) < level_of(axis) or self.levels[level_of(rank + k)].segments is not None
            for k, axis in enumerate(self.block_axes)
        ):
            raise ModelError(f"{description}: the order {list(self.order)} of its levels is not supported")
        coordinates = np.zeros((rank, 1), np.int64)
        for axis, level in zip(self.order, self.levels, strict=True):
            parents, children = _children(level, coordinates.shape[1], count, description)
            coordinates = coordinates[:, parents]
            if axis < rank:
                coordinates[axis] += children
            else:
                tensor_axis = self.block_axes[axis - rank]
                coordinates[tensor_axis] = coordinates[tensor_axis] * level.size + children
        if coordinates.shape[1] != elements.size:
            raise ModelError(f"{description}: {elements.size} elements for {coordinates.shape[1]} leaves")
        if (coordinates < 0).any() or (coordinates >= np.array(shape).reshape(rank, 1)).any():
            raise ModelError(f"{description}: an element outside of {list(shape)}")
        result = np.zeros(shape, elements.dtype)
        result[tuple(coordinates)] = elements
        return result


def _children(level: Level, nodes: int, max_children: int, description: str) -> tuple[Array, Array]:
    """Return the parent and the index of each child of a level."""
    if level.segments is None or level.indices is None:
        if not 0 <= nodes * level.size <= max_children:
            raise ModelError(f"{description}: a level of size {level.size} below {nodes} nodes")
        return np.repeat(np.arange(nodes), level.size), np.tile(np.arange(level.size), nodes)
    counts = np.diff(level.segments)
    if counts.size != nodes or level.segments[0] != 0 or (counts < 0).any() or level.segments[-1] != level.indices.size:
        raise ModelError(f"{description}: segments that do not divide {level.indices.size} indices among {nodes} nodes")
    return np.repeat(np.arange(nodes), counts), level.indices


def read_sparsity(table: FlatbufferTable) -> TfliteSparsity:
    return TfliteSparsity(table.integers(0), table.integers(1), table.tables(2, _level))


def _level(table: FlatbufferTable) -> Level:
    if table.scalar(0, "i8") == _DENSE:
        return Level(table.scalar(1, "i32"))
    return Level(0, _vector(table, 2), _vector(table, 4))


def _vector(table: FlatbufferTable, field_index: int) -> Array:
    dtype, vector = _VECTOR_DTYPES.get(table.scalar(field_index, "u8")), table.table(field_index + 1)
    array = None if vector is None or dtype is None else vector.array(0, dtype)
    return np.zeros(0, np.int64) if array is None else array.astype(np.int64)

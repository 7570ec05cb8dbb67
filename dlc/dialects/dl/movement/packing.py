"""Packed layouts: `dl.pack` splits an axis into tiles and makes the tile index outermost; `dl.unpack` is the inverse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.arrays import aligned_empty
from dlc.dialects.dl import scalar
from dlc.dialects.dl.base import (
    Array,
    Tensor,
    compatible,
    element_type_of,
    normalized_axes,
    number,
    rank_of,
    shape_of,
    tensor_type,
)
from dlc.dialects.dl.interfaces import Body, DataMovement, GatherLike
from dlc.dialects.dl.movement.shaping import clamp_index, result_iterators, static_size
from dlc.errors import ShapeError
from dlc.ir import (
    AffineMap,
    IntegerAttr,
    SSAValue,
    TensorType,
    arith,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)


@irdl_op_definition
class PackOp(GatherLike):
    """Splits one axis into tiles, outermost: `[…, O, …]` becomes `[⌈O / tile⌉, …, tile]`, padded with zeros.

    (C1) `axis` is an axis of `x`; (C2) `tile ≥ 1`.
    """

    name = "dl.pack"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    tile = prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def packed_axis(self) -> int:
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.x))[0]

    def infer(self) -> Sequence[Tensor]:
        shape, axis, tile = shape_of(self.x), self.packed_axis, number(self.tile)
        if tile < 1:
            raise ShapeError(f"dl.pack: tile {tile}, expected at least 1 (C2)")
        other_sizes = shape[:axis] + shape[axis + 1 :]
        return [tensor_type(((shape[axis] + tile - 1) // tile, *other_sizes, tile), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x,), axis, tile = operands, self.packed_axis, number(self.tile)
        x = x.transpose(*(k for k in range(x.ndim) if k != axis), axis)
        *other_sizes, size = x.shape
        # Weights are large: they are written once, to memory with the alignment that programs require.
        packed = aligned_empty((-(-size // tile), *other_sizes, tile), x.dtype)
        full_tiles, remainder = divmod(size, tile)
        tiles_last = packed.transpose(*range(1, packed.ndim - 1), 0, -1)
        tiles_last[..., :full_tiles, :] = x[..., : full_tiles * tile].reshape(*other_sizes, full_tiles, tile)
        if remainder:
            packed[full_tiles, ..., :remainder] = x[..., full_tiles * tile :]
            packed[full_tiles, ..., remainder:] = 0
        return packed

    def gather(self, body: Body, sources: Sequence[SSAValue], indices: Sequence[SSAValue]) -> SSAValue:
        size, tile = static_size(self, shape_of(self.x)[self.packed_axis]), number(self.tile)
        first = body(arith.MuliOp(indices[0], scalar.as_index(body, tile)))
        index = body(arith.AddiOp(first, indices[-1]))
        source_indices = list(indices[1:-1])
        source_indices.insert(self.packed_axis, index if size % tile == 0 else clamp_index(body, index, size))
        element = scalar.extract(body, sources[0], source_indices)
        if size % tile == 0:
            return element
        in_bounds = body(arith.CmpiOp(index, scalar.as_index(body, size), "slt"))
        return scalar.select(body, in_bounds, element, scalar.like(body, 0, element))


@irdl_op_definition
class UnpackOp(DataMovement):
    """The inverse of `dl.pack`: `[⌈size / tile⌉, …, tile]` becomes `[…, size, …]` with `size` at `axis`.

    (C1) `x` has at least rank 2, its last size is `tile`, its first `⌈size / tile⌉`; (C2) `axis` is an axis of the result.
    """

    name = "dl.unpack"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    tile = prop_def(IntegerAttr)
    size = prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def packed_axis(self) -> int:
        return normalized_axes(self.name, [number(self.axis)], rank_of(self.x) - 1)[0]

    def infer(self) -> Sequence[Tensor]:
        shape, tile, size = shape_of(self.x), number(self.tile), number(self.size)
        if len(shape) < 2 or tile < 1 or not compatible((shape[0], shape[-1]), (-(-size // tile), tile)):
            expected = f"[{-(-size // tile) if tile > 0 else '?'}, …, {tile}]"
            raise ShapeError(f"dl.unpack: x {shape}; expected {expected} for size {size} in tiles of {tile} (C1)")
        other_sizes = list(shape[1:-1])
        other_sizes.insert(self.packed_axis, size)
        return [tensor_type(other_sizes, element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x,) = operands
        tiles_last = np.moveaxis(x, 0, -2)
        *other_sizes, tiles, tile = tiles_last.shape
        flat = tiles_last.reshape(*other_sizes, tiles * tile)[..., : number(self.size)]
        return np.moveaxis(flat, -1, self.packed_axis)

    def source_map(self) -> AffineMap:
        rank, tile = rank_of(self.x) - 1, number(self.tile)
        axes = result_iterators(rank)
        split = axes.pop(self.packed_axis)
        return AffineMap(rank, 0, (split // tile, *axes, split % tile))

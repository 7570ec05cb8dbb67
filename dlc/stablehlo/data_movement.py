"""Converters of data-movement ops: shapes, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.ir import SSAValue, i64
from dlc.shapes.dims import Size
from dlc.stablehlo.node import STABLEHLO_ELEMENTS, Converter, StableHloNode, sizes_of


def broadcast_in_dim(node: StableHloNode) -> SSAValue:
    return broadcast_to(node, node.shape)


def broadcast_to(node: StableHloNode, result: Sequence[int]) -> SSAValue:
    """Broadcast: axis k of the operand becomes axis dims[k] of the result; all others are repeated."""
    dims, x = node.integers("dims", "broadcast_dimensions"), node[0]
    sizes = sizes_of(x)
    order = sorted(range(len(dims)), key=lambda k: dims[k])
    shape = [1] * len(result)
    for size, axis in zip(sizes, dims, strict=True):
        shape[axis] = size
    return node.broadcast(node.reshape(node.transpose(x, order), shape), result)


def reshape(node: StableHloNode) -> SSAValue:
    return node.reshape(node[0], node.shape)


def transpose(node: StableHloNode) -> SSAValue:
    return node.transpose(node[0], node.integers("dims", "permutation"))


def iota(node: StableHloNode) -> SSAValue:
    return iota_along(node, node.shape)


def iota_along(node: StableHloNode, shape: Sequence[int]) -> SSAValue:
    """Return 0, 1, … along one axis of an array of this shape."""
    axis: int = node.get("dim", "iota_dimension")
    indices = node.build(dl.IotaOp, size=(shape[axis],), to=node.element, start=0, step=1)
    aligned = [size if a == axis else 1 for a, size in enumerate(shape)]
    return node.broadcast(node.reshape(indices, aligned), shape)


def slice_(node: StableHloNode) -> SSAValue:
    if "ranges" in node.op.attributes:
        starts, limits, strides = ([axis_range[k] for axis_range in node.get("ranges")] for k in range(3))
    else:
        starts, limits, strides = (node.integers(name) for name in ("start_indices", "limit_indices", "strides"))
    return node.build(dl.SliceOp, node[0], starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))


def concatenate(node: StableHloNode) -> SSAValue:
    operands = [v for v in node.operands if 0 not in sizes_of(v)] or node.operands[:1]
    return node.build(dl.ConcatOp, *operands, axis=node.get("dim", "dimension")) if len(operands) > 1 else operands[0]


def reverse(node: StableHloNode) -> SSAValue:
    return node.build(dl.ReverseOp, node[0], axes=tuple(node.integers("dims", "dimensions")))


def pad(node: StableHloNode) -> SSAValue:
    low, high = node.integers("low", "edge_padding_low"), node.integers("high", "edge_padding_high")
    return pad_operand(node, low, high, node.integers("interior", "interior_padding"))


def pad_operand(node: StableHloNode, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> SSAValue:
    """Pad the first operand with the second: before, after and between its elements along each axis."""
    x = node[0]
    for axis, count in enumerate(interior):
        x = pad_interior(node, x, node[1], axis, count)
    return pad_sides(node, x, node[1], low, high)


def pad_sides(node: StableHloNode, x: SSAValue, value: SSAValue, low: Sequence[Size], high: Sequence[Size]) -> SSAValue:
    """Pad each axis with a value before and after; symbolic amounts, which must not be negative, by concatenation."""
    static_amounts = [tuple(n if isinstance(n, int) else 0 for n in side) for side in (low, high)]
    if any(map(any, static_amounts)):
        x = node.build(dl.PadOp, x, value, low=static_amounts[0], high=static_amounts[1], pad_mode="constant")
    for axis, amounts in enumerate(zip(low, high, strict=True)):
        sizes = shape_of(x)
        low_padding, high_padding = (
            [] if isinstance(n, int) else [node.broadcast(value, (*sizes[:axis], n, *sizes[axis + 1 :]))] for n in amounts
        )
        if low_padding or high_padding:
            x = node.build(dl.ConcatOp, *low_padding, x, *high_padding, axis=axis)
    return x


def pad_interior(node: StableHloNode, x: SSAValue, value: SSAValue, axis: int, count: int) -> SSAValue:
    """Insert `count` padding values between adjacent elements along an axis."""
    sizes = sizes_of(x)
    if count == 0 or sizes[axis] in (0, 1):
        return x
    expanded = node.reshape(x, [*sizes[: axis + 1], 1, *sizes[axis + 1 :]])
    zeros = (0,) * (len(sizes) + 1)
    expanded = node.build(
        dl.PadOp, expanded, value, low=zeros, high=(*zeros[: axis + 1], count, *zeros[axis + 2 :]), pad_mode="constant"
    )
    merged = node.reshape(expanded, [*sizes[:axis], sizes[axis] * (count + 1), *sizes[axis + 1 :]])
    limits = [n if a != axis else n - count for a, n in enumerate(sizes_of(merged))]
    return node.build(dl.SliceOp, merged, starts=(0,) * len(sizes), limits=tuple(limits), strides=(1,) * len(sizes))


def indices_as_i64(node: StableHloNode, indices: SSAValue) -> SSAValue:
    """Convert indices to i64; larger ones, which are out of bounds as well, become its largest number."""
    element = element_type_of(indices)
    if element == i64:
        return indices
    if element == STABLEHLO_ELEMENTS["ui64"]:
        indices = node.build(dl.MinimumOp, indices, node.scalar(np.iinfo(np.int64).max, indices))
    return node.build(dl.CastOp, indices, to=i64)


def _clamped_start(node: StableHloNode, index: SSAValue, max_start: int) -> SSAValue:
    """Return a start index as i64, clamped so that the slice is in bounds."""
    index_i64 = indices_as_i64(node, index)
    return node.build(dl.MinimumOp, node.build(dl.MaximumOp, index_i64, node.scalar(0, index_i64)), node.number(max_start))


def _iota(node: StableHloNode, count: int) -> SSAValue:
    return node.build(dl.IotaOp, size=(count,), to=i64, start=0, step=1)


def dynamic_slice(node: StableHloNode) -> SSAValue:
    return slice_at(node, node.operands[1:], node.integers("sizes", "slice_sizes"))


def slice_at(node: StableHloNode, starts: Sequence[SSAValue], sizes: Sequence[int]) -> SSAValue:
    """Slice the first operand with these sizes, from rank-0 start indices that are clamped to keep it in bounds."""
    x = node[0]
    for axis, size in enumerate(sizes):
        full_size = sizes_of(x)[axis]
        if size != full_size:
            indices = node.build(dl.AddOp, _iota(node, size), _clamped_start(node, starts[axis], full_size - size))
            x = node.build(dl.GatherOp, x, indices, axis=axis)
    return x


def dynamic_update_slice(node: StableHloNode) -> SSAValue:
    """Gather the update at the index of each element of the operand, and select it where that index is in range."""
    x, update, starts = node[0], node[1], node.operands[2:]
    sizes, mask = sizes_of(x), None
    if 0 in sizes_of(update):
        return x
    for axis, (full_size, size) in enumerate(zip(sizes, sizes_of(update), strict=True)):
        if size == full_size:
            continue
        update_index = node.build(dl.SubOp, _iota(node, full_size), _clamped_start(node, starts[axis], full_size - size))
        zero, last = node.scalar(0, update_index), node.number(size - 1)
        update = node.build(
            dl.GatherOp, update, node.build(dl.MinimumOp, node.build(dl.MaximumOp, update_index, zero), last), axis=axis
        )
        in_range = node.build(
            dl.AndOp, node.build(dl.GreaterEqualOp, update_index, zero), node.build(dl.LessEqualOp, update_index, last)
        )
        in_range = node.reshape(in_range, [full_size if a == axis else 1 for a in range(len(sizes))])
        mask = in_range if mask is None else node.build(dl.AndOp, mask, in_range)
    return update if mask is None else node.build(dl.SelectOp, mask, update, x)


OPERATORS: dict[str, Converter] = {
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.reshape": reshape,
    "stablehlo.transpose": transpose,
    "stablehlo.iota": iota,
    "stablehlo.slice": slice_,
    "stablehlo.concatenate": concatenate,
    "stablehlo.reverse": reverse,
    "stablehlo.pad": pad,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
}

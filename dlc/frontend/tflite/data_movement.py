"""Converters of data movement operators.

Quantized values are copied unchanged, so operand and result must have equal quantization parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import normalized_axes
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode
from dlc.ir import i64
from dlc.shapes.dims import Size, UndecidableError
from dlc.shapes.slices import clamp_where_decidable, forward_slice

table = TfliteConverterTable()

_SLICE_OPTIONS = "begin_mask.i32 end_mask.i32 ellipsis_mask.i32 new_axis_mask.i32 shrink_axis_mask.i32 is_offset.bool"


@table("DENSIFY")
def densify(node: TfliteNode) -> ImportedValue:
    # Sparse constants are dense once they are read.
    return node[0]


@table("TRANSPOSE")
def transpose(node: TfliteNode) -> ImportedValue:
    x = node[0]
    return node.emit.transpose(x, [node.axis(axis, x.rank) for axis in node.constant_integers(1, "permutation")])


@table("REVERSE_V2")
def reverse(node: TfliteNode) -> ImportedValue:
    x = node[0]
    return node.emit(dl.ReverseOp, x, axes=tuple(sorted(normalized_axes(None, node.constant_integers(1, "axes"), x.rank))))


@table("SLICE")
def slice_(node: TfliteNode) -> ImportedValue:
    x, begins, sizes = node[0], node.sizes(1, "begins"), node.sizes(2, "sizes")
    limits = [end if size == -1 else begin + size for begin, size, end in zip(begins, sizes, x.shape, strict=True)]
    return node.emit(dl.SliceOp, x, starts=begins, limits=tuple(limits), strides=(1,) * x.rank)


@table("STRIDED_SLICE", options=_SLICE_OPTIONS)
def strided_slice(node: TfliteNode) -> ImportedValue:
    """NumPy basic slicing with `begin:end:stride` for each entry.

    A set bit k in a mask changes entry k: it has no begin, has no end, is a new axis, is an integer index, or is the ellipsis.
    """
    emit, x = node.emit, node[0]
    begins, ends, steps = node.sizes(1, "begins"), node.sizes(2, "ends"), node.constant_integers(3, "steps")
    masks = {name: node.integer(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    if not len(begins) == len(ends) == len(steps) or 0 in steps or node.flag("is_offset"):
        raise NodeProblem(
            "attribute", "offset = true, a stride of 0, or begin, end and strides of different lengths: not supported"
        )

    def has_mask_bit(name: str, k: int) -> bool:
        return bool(masks[name] >> k & 1)

    count, new_axes = len(begins), sum(has_mask_bit("new_axis", k) for k in range(len(begins)))
    has_ellipsis = any(has_mask_bit("ellipsis", k) for k in range(count))
    num_ellipsis_axes = x.rank - (count - new_axes - has_ellipsis)
    if num_ellipsis_axes < 0:
        raise ModelError(f"{node.description}: {count} indices for a tensor of rank {x.rank}")
    starts: list[Size] = [0] * x.rank
    limits, strides = list(x.shape), [1] * x.rank
    reversed_axes: list[int] = []
    # The axes of the result: None is a new one.
    result_axes: list[int | None] = []
    axis = 0
    for k in range(count):
        if has_mask_bit("ellipsis", k):
            result_axes += range(axis, axis + num_ellipsis_axes)
            axis += num_ellipsis_axes
            continue
        if has_mask_bit("new_axis", k):
            result_axes.append(None)
            continue
        size, step = x.shape[axis], steps[k]
        if has_mask_bit("shrink_axis", k):
            starts[axis] = 0 if has_mask_bit("begin", k) else clamp_where_decidable(begins[k], size, 0, size)
            limits[axis] = starts[axis] + 1
        else:
            begin = None if has_mask_bit("begin", k) else begins[k]
            end = None if has_mask_bit("end", k) else ends[k]
            begin, end = forward_slice(size, begin, end, step, clamp_where_decidable)
            if step < 0:
                reversed_axes.append(axis)
            with suppress(UndecidableError):
                end = max(begin, end)
            starts[axis], limits[axis], strides[axis] = begin, end, abs(step)
            result_axes.append(axis)
        axis += 1
    result_axes += range(axis, x.rank)
    if reversed_axes:
        x = emit(dl.ReverseOp, x, axes=tuple(reversed_axes))
    if (starts, limits, strides) != ([0] * x.rank, list(x.shape), [1] * x.rank):
        x = emit(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))
    return emit.reshape(x, [1 if axis is None else x.shape[axis] for axis in result_axes])


def _pairs_per_axis(node: TfliteNode, k: int, value_name: str, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two tuples from a constant input [axes, 2]: the sizes before and after each axis, for padding or cropping."""
    sizes = node.constant_integers(k, value_name)
    if len(sizes) != 2 * axes or min(sizes, default=0) < 0:
        raise ModelError(f"{node.description}: {value_name} {list(sizes)} for {axes} axes; expected two per axis, not negative")
    return sizes[::2], sizes[1::2]


@table("PAD", "PADV2")
def pad(node: TfliteNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    low, high = _pairs_per_axis(node, 1, "paddings", x.rank)
    return emit.pad(x, low, high, emit.scalar(_zero_point(node), x) if node.get(2) is None else emit.reshape(node[2], ()))


def _zero_point(node: TfliteNode) -> int:
    """Return the zero point of the first output; 0 if it is not quantized."""
    quantization = node.results[0].quantization
    return 0 if quantization is None else int(quantization.zero_points[0])


@table("MIRROR_PAD", options="mode.i8")
def mirror_pad(node: TfliteNode) -> ImportedValue:
    """Pad by reflection: mode 0 (reflect) does not repeat the outermost elements, mode 1 (symmetric) does."""
    emit, x = node.emit, node[0]
    low, high = _pairs_per_axis(node, 1, "paddings", x.rank)
    if not node.integer("mode"):
        return emit.pad(x, low, high, mode="reflect")
    for axis in range(x.rank):
        size = x.shape[axis]
        low_padding, high_padding = (
            [emit(dl.ReverseOp, emit.slice(x, axis, *bounds), axes=(axis,))] if padded_size else []
            for padded_size, bounds in ((low[axis], (0, low[axis])), (high[axis], (size - high[axis], size)))
        )
        x = emit(dl.ConcatOp, *low_padding, x, *high_padding, axis=axis) if low_padding or high_padding else x
    return x


@table("GATHER", options="axis.i32 batch_dims.i32")
def gather(node: TfliteNode) -> ImportedValue:
    emit, x, indices = node.emit, node[0], node[1]
    axis, batch = node.axis(node.integer("axis"), x.rank), node.integer("batch_dims")
    batch = batch + indices.rank if batch < 0 else batch
    if not batch:
        return emit(dl.GatherOp, x, indices, axis=axis)
    if not 0 <= batch <= min(axis, indices.rank):
        raise ModelError(f"{node.description}: batch_dims {batch} with axis {axis} and indices of rank {indices.rank}")
    # Move the gathered axis next to the batch axes, gather, and move the axes between them back:
    # [B, …, n, …] → [B, n, …, …] → [B, *I, …, …] → [B, …, *I, …]
    num_between_axes, index_rank = axis - batch, indices.rank - batch
    axis_first = emit.transpose(x, (*range(batch), axis, *range(batch, axis), *range(axis + 1, x.rank)))
    y = emit(dl.GatherNdOp, axis_first, emit.reshape(indices, (*indices.shape, 1)), batch_dims=batch)
    between_axes = range(batch + index_rank, batch + index_rank + num_between_axes)
    return emit.transpose(
        y, (*range(batch), *between_axes, *range(batch, batch + index_rank), *range(between_axes.stop, y.rank))
    )


@table("EMBEDDING_LOOKUP")
def embedding_lookup(node: TfliteNode) -> ImportedValue:
    """Gather rows of a table. Inputs: indices, table."""
    embeddings = node[1]
    return node.emit(dl.GatherOp, embeddings, node[0], axis=0)


@table("GATHER_ND")
def gather_nd(node: TfliteNode) -> ImportedValue:
    return node.emit(dl.GatherNdOp, node[0], node[1])


@table("SCATTER_ND")
def scatter_nd(node: TfliteNode) -> ImportedValue:
    """Add updates into zeros. Inputs: indices, updates, shape of the result. Updates at equal indices are added up."""
    updates = node[1]
    zeros = node.emit.full(0, node.sizes(2, "shape"), updates)
    return node.emit(dl.ScatterNdOp, zeros, node[0], updates, mode="add")


@table("TOPK_V2")
def top_k(node: TfliteNode) -> list[ImportedValue]:
    emit, x = node.emit, node[0]
    order = emit(dl.ArgsortOp, x, axis=x.rank - 1, descending=True, count=(node.scalar_input(1, "k"),))
    return [emit(dl.GatherElementsOp, x, order, axis=x.rank - 1), emit.cast(order, node.element_type(1))]


def _input_and_block_size(node: TfliteNode) -> tuple[ImportedValue, int, tuple[Size, ...]]:
    """Return the input, the block size and the shape [N, H, W, C] of the input."""
    x, block = node[0], node.integer("block")
    if x.rank != 4 or block < 1:
        raise ModelError(
            f"{node.description}: expected rank 4 and a positive block_size, got rank {x.rank} and block_size {block}"
        )
    return x, block, x.shape


@table("SPACE_TO_DEPTH", options="block.i32")
def space_to_depth(node: TfliteNode) -> ImportedValue:
    emit, (x, b, (n, h, w, c)) = node.emit, _input_and_block_size(node)
    split = emit.reshape(x, (n, h // b, b, w // b, b, c))
    return emit.reshape(emit.transpose(split, (0, 1, 3, 2, 4, 5)), (n, h // b, w // b, c * b * b))


@table("DEPTH_TO_SPACE", options="block.i32")
def depth_to_space(node: TfliteNode) -> ImportedValue:
    emit, (x, b, (n, h, w, c)) = node.emit, _input_and_block_size(node)
    split = emit.reshape(x, (n, h, w, b, b, c // (b * b)))
    return emit.reshape(emit.transpose(split, (0, 1, 3, 2, 4, 5)), (n, h * b, w * b, c // (b * b)))


def _batch_blocks(node: TfliteNode) -> tuple[int, ...]:
    """Return the block sizes of the axes after the first one."""
    blocks = node.constant_integers(1, "blocks")
    if not 0 < len(blocks) < node[0].rank or min(blocks) < 1:
        raise ModelError(f"{node.description}: blocks {list(blocks)} for a tensor of rank {node[0].rank}")
    return blocks


def _interleaved(a: Sequence[Size], b: Sequence[Size]) -> list[Size]:
    return [s for pair in zip(a, b, strict=True) for s in pair]


@table("SPACE_TO_BATCH_ND")
def space_to_batch(node: TfliteNode) -> ImportedValue:
    """Pad, then [N, H, W, C] → [b · c · N, H / b, W / c, C] for blocks [b, c]."""
    emit, x, blocks = node.emit, node[0], _batch_blocks(node)
    count = len(blocks)
    unpadded = (0,) * (x.rank - 1 - count)
    low, high = ((0, *padded_sizes, *unpadded) for padded_sizes in _pairs_per_axis(node, 2, "paddings", count))
    x = emit.pad(x, low, high, emit.scalar(_zero_point(node), x))
    batch, sizes, trailing_sizes = x.shape[0], x.shape[1 : count + 1], x.shape[count + 1 :]
    inner = [size // b for size, b in zip(sizes, blocks, strict=True)]
    split = emit.reshape(x, (batch, *_interleaved(inner, blocks), *trailing_sizes))
    order = (*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), *range(2 * count + 1, split.rank))
    factor = int(np.prod(blocks))
    return emit.reshape(emit.transpose(split, order), (batch * factor, *inner, *trailing_sizes))


@table("BATCH_TO_SPACE_ND")
def batch_to_space(node: TfliteNode) -> ImportedValue:
    """[b · c · N, H, W, C] → [N, H · b, W · c, C] for blocks [b, c], then crop."""
    emit, x, blocks = node.emit, node[0], _batch_blocks(node)
    count = len(blocks)
    low, high = _pairs_per_axis(node, 2, "crops", count)
    batch, sizes, trailing_sizes = x.shape[0] // int(np.prod(blocks)), x.shape[1 : count + 1], x.shape[count + 1 :]
    split = emit.reshape(x, (*blocks, batch, *sizes, *trailing_sizes))
    order = [count, *(a for k in range(count) for a in (count + 1 + k, k)), *range(2 * count + 1, split.rank)]
    merged_sizes = [size * b for size, b in zip(sizes, blocks, strict=True)]
    y = emit.reshape(emit.transpose(split, order), (batch, *merged_sizes, *trailing_sizes))
    for k in range(count):
        y = emit.slice(y, k + 1, low[k], merged_sizes[k] - high[k])
    return y


@table("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: TfliteNode) -> ImportedValue:
    """Overwrite a window. Inputs: operand, update, start. The start is clamped so that the update fits."""
    emit, x, update = node.emit, node[0], node[1]
    starts = emit.cast(node[2], i64)
    indices: ImportedValue | None = None
    for axis, (size, update_size) in enumerate(zip(x.shape, update.shape, strict=True)):
        start = emit.reshape(emit.slice(starts, 0, axis, axis + 1), ())
        start = emit(dl.MaximumOp, emit(dl.MinimumOp, start, emit.sizes(size - update_size)), emit.scalar(0, i64))
        axis_indices = emit.reshape(
            emit(dl.AddOp, emit.iota(update_size), start), [update_size if a == axis else 1 for a in range(x.rank + 1)]
        )
        axis_indices = emit.broadcast(axis_indices, (*update.shape, 1))
        indices = axis_indices if indices is None else emit(dl.ConcatOp, indices, axis_indices, axis=x.rank)
    assert indices is not None
    return emit(dl.ScatterNdOp, x, indices, update, mode="none")

"""Batching rules of contractions, convolutions and pooling windows."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import ints, number, rank_of, shape_of
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.contractions.conv_transpose import ConvTransposeOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.contractions.winograd import ModeProductOp
from dlc.dialects.dl.interfaces import Contraction, Window
from dlc.dialects.dl.movement.shaping import SliceOp, SlidingWindowsOp
from dlc.ir import AffineDimExpr, AffineMap, SSAValue
from dlc.passes.batching.batching_context import BatchingContext
from dlc.passes.batching.rules import Rule

# The iterator over the batch, in addition to those of a contraction.
BATCH_ITERATOR = -1


def matmul(context: BatchingContext, op: MatmulOp) -> Sequence[SSAValue]:
    """Batch matrices by one more leading axis, which broadcasts; with vector operands use `product`."""
    rank = max(rank_of(op.lhs), rank_of(op.rhs))
    if min(rank_of(op.lhs), rank_of(op.rhs)) < 2:
        return product(context, op)
    return context.clone_op(op, context.align_rank(op.lhs, rank), context.align_rank(op.rhs, rank))


def product(context: BatchingContext, op: Contraction) -> Sequence[SSAValue]:
    """Batch a contraction by dimension numbers: a batch axis of both operands is a batch axis, of one operand a free axis.

    Σₖ a[i, k] · b[l, k] over batch elements l is one matrix product, whatever the batch size.
    """
    structure = op.structure()
    *maps, result = map(_iterators, structure.maps)
    sides = [_operand_with_iterators(context, v, axes) for v, axes in zip(op.operands, maps, strict=True)]
    # The batched operand comes first, unless the other operand's axes precede its own in the result.
    if not context.is_batched(op.operands[0]) and len(sides[1][1]) - 1 == sum(i in sides[0][1] for i in sides[1][1]):
        sides.reverse()
    (lhs, lhs_axes), (rhs, rhs_axes) = sides
    reduced = {i for i, is_reduced in enumerate(structure.reductions) if is_reduced}
    shared = [i for i in lhs_axes if i in rhs_axes]
    batch, contracted = [i for i in shared if i not in reduced], [i for i in shared if i in reduced]
    y = context.build(
        DotGeneralOp,
        lhs,
        rhs,
        lhs_batch=[lhs_axes.index(i) for i in batch],
        rhs_batch=[rhs_axes.index(i) for i in batch],
        lhs_contract=[lhs_axes.index(i) for i in contracted],
        rhs_contract=[rhs_axes.index(i) for i in contracted],
        result=op.properties.get("result"),
        dot=op.properties.get("dot"),
    )
    order = [*batch, *(i for axes in (lhs_axes, rhs_axes) for i in axes if i not in shared)]
    return [context.transpose(y, [order.index(i) for i in (BATCH_ITERATOR, *result) if i is not None])]


def _iterators(m: AffineMap) -> list[int | None]:
    """Return the iterator of each axis; None for a broadcast unit axis."""
    return [int(e.position) if isinstance(e, AffineDimExpr) else None for e in m.results]


def _operand_with_iterators(
    context: BatchingContext, value: SSAValue, axes: Sequence[int | None]
) -> tuple[SSAValue, list[int]]:
    """Return an operand without its broadcast unit axes, and the iterator of each remaining axis."""
    counterpart, iterators = context.lookup(value), [i for i in axes if i is not None]
    batch_shape = [context.size] if context.is_batched(value) else []
    sizes = [n for n, i in zip(shape_of(value), axes, strict=True) if i is not None]
    return context.reshape(counterpart, *batch_shape, *sizes), [*(BATCH_ITERATOR for _ in batch_shape), *iterators]


def images(context: BatchingContext, op: Window | ConvOp | ConvTransposeOp) -> Sequence[SSAValue] | None:
    """Merge the batch axis into the image axis; None if weights are batched."""
    x, *weights = op.operands
    if any(map(context.is_batched, weights)):
        return None
    count, *image_shape = shape_of(x)
    merged_images = context.reshape(context.with_batch_axis(x), context.size * count, *image_shape)
    (y,) = context.clone_op(op, merged_images, *map(context.lookup, weights))
    return [context.reshape(y, context.size, *shape_of(op.results[0]))]


def conv(context: BatchingContext, op: ConvOp) -> Sequence[SSAValue] | None:
    """Batch over weights too: contract windows of the images with the weights over taps and channels.

    y[L, g, n, s, o] = Σ over k and c of windows[k, L, n, s, g, c] · w[L, k, c, g, o]: batch elements and groups are batch axes.
    """
    if not context.is_batched(op.w):
        return images(context, op)
    count, *spatial, channels = shape_of(op.x)
    *kernel, depth, outputs = (int(s) for s in shape_of(op.w))
    groups, rank = int(number(op.groups)), len(kernel)
    x = context.reshape(context.with_batch_axis(op.x), context.size, count, *spatial, groups, channels // groups)
    window_extents = [(k - 1) * d + 1 for k, d in zip(kernel, ints(op.dilations), strict=True)]
    axes = tuple(range(2, 2 + rank))
    taps = context.build(SlidingWindowsOp, x, axes=axes, sizes=window_extents, strides=ints(op.strides))
    if window_extents != kernel:
        shape = shape_of(taps)
        steps = (*ints(op.dilations), *(1 for _ in shape[rank:]))
        taps = context.build(SliceOp, taps, starts=[0] * len(shape), limits=shape, strides=steps)
    w = context.reshape(context.with_batch_axis(op.w), context.size, *kernel, depth, groups, outputs // groups)
    y = context.build(
        DotGeneralOp,
        taps,
        w,
        lhs_batch=(rank, 2 * rank + 2),
        rhs_batch=(0, rank + 2),
        lhs_contract=(*range(rank), 2 * rank + 3),
        rhs_contract=range(1, rank + 2),
        result=op.properties.get("result"),
        dot=op.properties.get("dot"),
    )
    return [context.reshape(context.move_axis(y, 1, rank + 2), context.size, *shape_of(op.result))]


RULES: dict[type, Rule] = {
    MatmulOp: matmul,
    DotGeneralOp: product,
    ModeProductOp: product,
    ConvOp: conv,
    Window: images,
    ConvTransposeOp: images,
}

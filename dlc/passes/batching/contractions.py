"""Sums of products and windows for all lanes at once."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import ints, number, rank_of, shape_of
from dlc.dialects.dl.contractions.contraction import DotGeneralOp, MatmulOp
from dlc.dialects.dl.contractions.conv_transpose import ConvTransposeOp
from dlc.dialects.dl.contractions.convolution import ConvOp
from dlc.dialects.dl.contractions.winograd import ModeProductOp
from dlc.dialects.dl.interfaces import Contraction, Window
from dlc.dialects.dl.movement.shaping import SliceOp, WindowsOp
from dlc.ir import AffineDimExpr, AffineMap, SSAValue
from dlc.passes.batching.lanes import Lanes
from dlc.passes.batching.rules import Rule

# The iterator over lanes, beside those of a contraction.
LANE = -1


def matmul(lanes: Lanes, op: MatmulOp) -> Sequence[SSAValue]:
    """Matrices: lanes are one more of the leading axes, which broadcast. With vectors it is a product of axes."""
    rank = max(rank_of(op.lhs), rank_of(op.rhs))
    if min(rank_of(op.lhs), rank_of(op.rhs)) < 2:
        return product(lanes, op)
    return lanes.again(op, lanes.aligned(op.lhs, rank), lanes.aligned(op.rhs, rank))


def product(lanes: Lanes, op: Contraction) -> Sequence[SSAValue]:
    """Where each axis of an operand is an iterator: lanes of both are a batch axis, of one a free axis.

    Σₖ a[i, k] · b[l, k] over lanes l is one product of matrices, whatever the number of lanes.
    """
    structure = op.structure()
    *maps, result = map(_iterators, structure.maps)
    sides = [_side(lanes, v, axes) for v, axes in zip(op.operands, maps, strict=True)]
    # What has lanes comes first, unless the other operand's axes come before its own in the result.
    if not lanes.differs(op.operands[0]) and len(sides[1][1]) - 1 == sum(i in sides[0][1] for i in sides[1][1]):
        sides.reverse()
    (lhs, lhs_axes), (rhs, rhs_axes) = sides
    reduced = {i for i, is_reduced in enumerate(structure.reductions) if is_reduced}
    both = [i for i in lhs_axes if i in rhs_axes]
    batch, contracted = [i for i in both if i not in reduced], [i for i in both if i in reduced]
    y = lanes.build(
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
    order = [*batch, *(i for axes in (lhs_axes, rhs_axes) for i in axes if i not in both)]
    return [lanes.transposed(y, [order.index(i) for i in (LANE, *result) if i is not None])]


def _iterators(m: AffineMap) -> list[int | None]:
    """The iterator that each axis is; None for an axis of size 1 that is read at its only place."""
    return [int(e.position) if isinstance(e, AffineDimExpr) else None for e in m.results]


def _side(lanes: Lanes, value: SSAValue, axes: Sequence[int | None]) -> tuple[SSAValue, list[int]]:
    """An operand with the iterators that its axes are, without axes that are none."""
    now, iterators = lanes.read(value), [i for i in axes if i is not None]
    lead = [lanes.size] if lanes.differs(value) else []
    kept = [n for n, i in zip(shape_of(value), axes, strict=True) if i is not None]
    return lanes.reshaped(now, *lead, *kept), [*(LANE for _ in lead), *iterators]


def images(lanes: Lanes, op: Window | ConvOp | ConvTransposeOp) -> Sequence[SSAValue] | None:
    """Lanes of images are more images, while weights are the same in all of them."""
    x, *weights = op.operands
    if any(map(lanes.differs, weights)):
        return None
    count, *rest = shape_of(x)
    more = lanes.reshaped(lanes.all(x), lanes.size * count, *rest)
    (y,) = lanes.again(op, more, *map(lanes.read, weights))
    return [lanes.reshaped(y, lanes.size, *shape_of(op.results[0]))]


def conv(lanes: Lanes, op: ConvOp) -> Sequence[SSAValue] | None:
    """Weights of each lane: windows of its images, multiplied by them over taps and channels.

    y[L, g, n, s, o] = Σ over k and c of windows[k, L, n, s, g, c] · w[L, k, c, g, o]: lanes and groups are batch axes.
    """
    if not lanes.differs(op.w):
        return images(lanes, op)
    count, *spatial, channels = shape_of(op.x)
    *kernel, depth, outputs = (int(s) for s in shape_of(op.w))
    groups, rank = int(number(op.groups)), len(kernel)
    x = lanes.reshaped(lanes.all(op.x), lanes.size, count, *spatial, groups, channels // groups)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, ints(op.dilations), strict=True)]
    axes = tuple(range(2, 2 + rank))
    taps = lanes.build(WindowsOp, x, axes=axes, sizes=reach, strides=ints(op.strides))
    if reach != kernel:
        shape = shape_of(taps)
        steps = (*ints(op.dilations), *(1 for _ in shape[rank:]))
        taps = lanes.build(SliceOp, taps, starts=[0] * len(shape), limits=shape, strides=steps)
    w = lanes.reshaped(lanes.all(op.w), lanes.size, *kernel, depth, groups, outputs // groups)
    y = lanes.build(
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
    return [lanes.reshaped(lanes.moved(y, 1, rank + 2), lanes.size, *shape_of(op.result))]


RULES: dict[type, Rule] = {
    MatmulOp: matmul,
    DotGeneralOp: product,
    ModeProductOp: product,
    ConvOp: conv,
    Window: images,
    ConvTransposeOp: images,
}

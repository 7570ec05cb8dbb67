"""Transpose rules of contractions: products and convolutions, with respect to either operand."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, ints, number, rank_of, shape_of
from dlc.ir import AffineConstantExpr, AffineDimExpr, AffineMap, SSAValue
from dlc.passes.autodiff.shapes import padded, require_static_shape
from dlc.passes.autodiff.term import Term


def contraction(op: dl.MatmulOp | dl.DotGeneralOp, cotangent: Term, index: int) -> Term:
    """Contract the cotangent with the other operand. Iterators of the operand are kept, all others are summed."""
    operand_map, other = op.structure().maps[index], op.structure().maps[1 - index]
    result, operand, other_operand = op.structure().maps[2], op.operands[index], op.operands[1 - index]
    cotangent = _cast_like(cotangent, operand)
    # Order the operands so that the result's axes are in order if possible: ȳ·bᵀ and aᵀ·ȳ.
    pair = [(cotangent, result), (Term(cotangent.build, other_operand), other)]
    (lhs, left), (rhs, right) = pair if index == 0 else reversed(pair)
    left, right, operand_iterators = _iterators(left), _iterators(right), _iterators(operand_map)
    # Broadcast axes have the constant index 0, and size 1.
    lhs, rhs = _drop_broadcast_axes(lhs, left), _drop_broadcast_axes(rhs, right)
    left, right = [i for i in left if i is not None], [i for i in right if i is not None]
    # Sum over iterators that only one operand has, and that the result does not have.
    lhs, left = _sum_other_axes(lhs, left, [i for i in left if i in right or i in operand_iterators])
    rhs, right = _sum_other_axes(rhs, right, [i for i in right if i in left or i in operand_iterators])
    shared = [i for i in left if i in right]
    batch, contracted = [i for i in shared if i in operand_iterators], [i for i in shared if i not in operand_iterators]
    product = lhs.op(
        dl.DotGeneralOp,
        rhs,
        lhs_batch=[left.index(i) for i in batch],
        rhs_batch=[right.index(i) for i in batch],
        lhs_contract=[left.index(i) for i in contracted],
        rhs_contract=[right.index(i) for i in contracted],
    )
    order = [*batch, *(i for i in left if i not in shared), *(i for i in right if i not in shared)]
    return product.transpose(*(order.index(i) for i in operand_iterators if i is not None)).reshape(*shape_of(operand))


def _cast_like(cotangent: Term, operand: SSAValue) -> Term:
    """Cast a cotangent to an operand's element type, since the result type may be wider."""
    element = element_type_of(operand)
    return cotangent if element_type_of(cotangent.value) == element else cotangent.op(dl.CastOp, to=element)


def _iterators(indexing: AffineMap) -> list[int | None]:
    """Return the iterator of each axis; None for a broadcast unit axis."""
    iterators: list[int | None] = []
    for expression in indexing.results:
        assert isinstance(expression, AffineDimExpr | AffineConstantExpr)
        iterators.append(expression.position if isinstance(expression, AffineDimExpr) else None)
    return iterators


def _drop_broadcast_axes(x: Term, iterators: Sequence[int | None]) -> Term:
    return x.reshape(*(s for s, i in zip(x.shape, iterators, strict=True) if i is not None))


def _sum_other_axes(x: Term, iterators: list[int], remaining: list[int]) -> tuple[Term, list[int]]:
    summed_axes = [a for a, i in enumerate(iterators) if i not in remaining]
    return (x.op(dl.ReduceSumOp, axes=summed_axes), remaining) if summed_axes else (x, remaining)


def conv(op: dl.ConvOp, cotangent: Term, index: int) -> Term:
    """Transpose a convolution.

    With respect to x it is a transposed convolution with w; with respect to w it is a contraction of windows of x.
    """
    cotangent = _cast_like(cotangent, op.operands[index])
    return _conv_input(op, cotangent) if index == 0 else _conv_weight(op, cotangent)


def _conv_input(op: dl.ConvOp, cotangent: Term) -> Term:
    """Build the transposed convolution of the cotangent with w, channels exchanged; 0 where no window covers x."""
    rank = rank_of(op.w)
    w = Term(cotangent.build, op.w).transpose(*range(rank - 2), rank - 1, rank - 2)
    x = cotangent.op(dl.ConvTransposeOp, w, strides=ints(op.strides), dilations=ints(op.dilations), groups=number(op.groups))
    high = [n - m for n, m in zip(shape_of(op.x), x.shape, strict=True)]
    return padded(x, [0] * rank, high, [0] * rank)


def _conv_weight(op: dl.ConvOp, cotangent: Term) -> Term:
    """Contract windows of the input with the cotangent, over images and positions."""
    strides, dilations, groups = ints(op.strides), ints(op.dilations), number(op.groups)
    *kernel, depth, outputs = require_static_shape(op, op.w)
    spatial = len(kernel)
    axes = tuple(range(1, spatial + 1))
    window_extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    windows = Term(cotangent.build, op.x).op(dl.SlidingWindowsOp, axes=axes, sizes=window_extents, strides=strides)
    if any(d > 1 for d in dilations):
        taps = (*dilations, *(1 for _ in range(spatial + 2)))
        windows = windows.op(dl.SliceOp, starts=(0,) * len(taps), limits=windows.shape, strides=taps)
    if depth == 1 and outputs == groups:
        summed = (windows * cotangent).sum(*range(spatial, 2 * spatial + 1))
        return summed.reshape(*shape_of(op.w))
    summed_axes = list(range(spatial, 2 * spatial + 1)), list(range(spatial + 1))
    if groups == 1:
        return windows.op(
            dl.DotGeneralOp, cotangent, lhs_batch=(), rhs_batch=(), lhs_contract=summed_axes[0], rhs_contract=summed_axes[1]
        )
    windows = windows.reshape(*windows.shape[:-1], groups, depth)
    cotangent = cotangent.reshape(*cotangent.shape[:-1], groups, outputs // groups)
    product = windows.op(
        dl.DotGeneralOp,
        cotangent,
        lhs_batch=(2 * spatial + 1,),
        rhs_batch=(spatial + 1,),
        lhs_contract=summed_axes[0],
        rhs_contract=summed_axes[1],
    )
    # [G, *K, C/G, O/G] → [*K, C/G, O]
    return product.transpose(*range(1, spatial + 2), 0, spatial + 2).reshape(*shape_of(op.w))

"""Transpose rules of linear ops: the cotangent of an operand from that of the result.

An op here is linear in each active float operand while the others are constant. Where it is linear in several operands
jointly (concat, pad, scatter_rows), each is transposed with the others set to zero. Contractions and indexing have
separate files.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import product as cartesian_product
from typing import Any, TypeAlias

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, flag, ints, rank_of, shape_of, sizes
from dlc.ir import SSAValue
from dlc.passes.autodiff.collective_transposes import COLLECTIVES
from dlc.passes.autodiff.contraction_transposes import contraction, conv
from dlc.passes.autodiff.indexing_transposes import (
    gather,
    gather_elements,
    gather_nd,
    max_pool_gradient,
    nonconstant_pad,
    scatter_rows,
    scatter_slice,
)
from dlc.passes.autodiff.shapes import padded, unbroadcast, zeros
from dlc.passes.autodiff.term import Term
from dlc.passes.dl.rewriting import inverse
from dlc.plugins.tables import ExtensionTable
from dlc.shapes.dims import Size, is_static

# (op, cotangent of the result, operand index) -> cotangent of the operand.
Transpose: TypeAlias = Callable[[Any, Term, int], Term]


# ── data movement ──


def _cast(op: dl.CastOp, cotangent: Term, index: int) -> Term:
    return cotangent.op(dl.CastOp, to=element_type_of(op.x))


def _reshape(op: dl.ReshapeOp, cotangent: Term, index: int) -> Term:
    return cotangent.reshape(*shape_of(op.x))


def _transpose(op: dl.TransposeOp, cotangent: Term, index: int) -> Term:
    return cotangent.transpose(*inverse(op.axes))


def _broadcast_to(op: dl.BroadcastToOp, cotangent: Term, index: int) -> Term:
    return unbroadcast(cotangent, shape_of(op.x))


def _reverse(op: dl.ReverseOp, cotangent: Term, index: int) -> Term:
    return cotangent.op(dl.ReverseOp, axes=op.reversed_axes)


def _slice(op: dl.SliceOp, cotangent: Term, index: int) -> Term:
    starts, strides, result_sizes = [*sizes(op.starts)], [*ints(op.strides)], shape_of(op.result)
    if 0 in result_sizes:
        return zeros(cotangent.build, op.x)
    for axis, (stride, size) in enumerate(zip(strides, result_sizes, strict=True)):
        if stride > 1 and not is_static((size,)):
            # The slice may be empty, which cannot be dilated.
            cotangent = scatter_slice(cotangent, axis, starts[axis], stride, shape_of(op.x)[axis])
            starts[axis], strides[axis] = 0, 1
    limits = [s + (n - 1) * k + 1 for s, n, k in zip(starts, cotangent.shape, strides, strict=True)]
    high = [n - e for n, e in zip(shape_of(op.x), limits, strict=True)]
    return padded(cotangent, starts, high, [k - 1 for k in strides])


def _windows(op: dl.SlidingWindowsOp, cotangent: Term, index: int) -> Term:
    """Sum the windows at the positions they were taken from."""
    shape, windows_by_axis, count = shape_of(op.x), op.windows_by_axis, len(ints(op.axes))
    window_positions = shape_of(op.result)[count:]
    total: Term | None = None
    for tap in cartesian_product(*(range(window) for window, _ in windows_by_axis.values())):
        starts = dict(zip(windows_by_axis, tap, strict=True))
        window_cotangent = cotangent.op(
            dl.SliceOp,
            starts=(*tap, *(0 for _ in shape)),
            limits=(*(t + 1 for t in tap), *window_positions),
            strides=(1,) * len(cotangent.shape),
        )
        strides = [windows_by_axis[a][1] if a in windows_by_axis else 1 for a in range(len(shape))]
        low = [starts.get(a, 0) for a in range(len(shape))]
        high = [n - first - ((m - 1) * s + 1) for n, first, m, s in zip(shape, low, window_positions, strides, strict=True)]
        contribution = padded(window_cotangent.reshape(*window_positions), low, high, [s - 1 for s in strides])
        total = contribution if total is None else total + contribution
    return total if total is not None else zeros(cotangent.build, op.x)


def _concat(op: dl.ConcatOp, cotangent: Term, index: int) -> Term:
    axis = op.concat_axis
    start: Size = sum((shape_of(v)[axis] for v in op.operands[:index]), 0)
    starts: list[Size] = [0] * len(cotangent.shape)
    limits = list(cotangent.shape)
    starts[axis], limits[axis] = start, start + shape_of(op.operands[index])[axis]
    return cotangent.op(dl.SliceOp, starts=starts, limits=limits, strides=(1,) * len(starts))


def _transposed_pad(op: dl.PadOp, cotangent: Term, index: int) -> Term:
    if op.mode != "constant":
        return nonconstant_pad(op, cotangent) if index == 0 else cotangent.like(0)
    interior = padded(cotangent, [-n for n in ints(op.low)], [-n for n in ints(op.high)], [0] * rank_of(op.x))
    return interior if index == 0 else _total(cotangent) - _total(interior)


def _dilate(op: dl.DilateOp, cotangent: Term, index: int) -> Term:
    interior = cotangent.op(
        dl.SliceOp, starts=(0,) * len(cotangent.shape), limits=cotangent.shape, strides=[k + 1 for k in ints(op.interior)]
    )
    return interior if index == 0 else _total(cotangent) - _total(interior)


def _total(x: Term) -> Term:
    """Sum all elements."""
    return x.op(dl.ReduceSumOp, axes=tuple(range(len(x.shape))))


# ── sums ──


def _reduce_sum(op: dl.ReduceSumOp, cotangent: Term, index: int) -> Term:
    unit_shape = [1 if a in op.reduction_axes else s for a, s in enumerate(shape_of(op.x))]
    return cotangent.reshape(*unit_shape).broadcast(*shape_of(op.x))


def _cumsum(op: dl.CumsumOp, cotangent: Term, index: int) -> Term:
    return cotangent.op(dl.CumsumOp, axis=op.cumulative_axis, exclusive=flag(op.exclusive), reverse=not flag(op.reverse))


def _sum_pool(op: dl.SumPoolOp, cotangent: Term, index: int) -> Term:
    """A sum pool with stride 1 of the dilated, padded cotangent: each element sums the windows that cover it."""
    kernel, strides, dilations = ints(op.kernel), ints(op.strides), ints(op.dilations)
    window_reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    begins = [(m - 1) * s + 1 for m, s in zip(shape_of(op.result)[1:-1], strides, strict=True)]
    high = [p - q for p, q in zip(shape_of(op.x)[1:-1], begins, strict=True)]
    dilated = padded(cotangent, (0, *window_reach, 0), (0, *high, 0), (0, *(s - 1 for s in strides), 0))
    return dilated.op(dl.SumPoolOp, kernel=kernel, strides=(1,) * len(kernel), dilations=dilations)


def _triangular_solve(op: dl.TriangularSolveOp, cotangent: Term, index: int) -> Term:
    """T⁻ᴴ·cotangent; T must be constant."""
    settings = {"lower": not flag(op.lower), "unit": op.unit, "complex": op.complex}
    build, adjoint = cotangent.build, Term(cotangent.build, op.a).matrix_transpose()
    if flag(op.complex):
        adjoint = adjoint * Term(build, build.constant(np.array([1, -1]).reshape(2, 1, 1), element_type_of(op.a)))
    return adjoint.op(dl.TriangularSolveOp, cotangent, **settings)


TRANSPOSE_RULES: ExtensionTable[type[DlOp], Transpose] = ExtensionTable(
    "transpose_rules",
    {
        dl.AddDependencyOp: lambda op, cotangent, index: cotangent,
        **COLLECTIVES,
        dl.ShardOp: lambda op, cotangent, index: cotangent.op(dl.ShardOp, spec=op.spec),
        dl.CastOp: _cast,
        dl.ReshapeOp: _reshape,
        dl.TransposeOp: _transpose,
        dl.BroadcastToOp: _broadcast_to,
        dl.ReverseOp: _reverse,
        dl.SliceOp: _slice,
        dl.SlidingWindowsOp: _windows,
        dl.ConcatOp: _concat,
        dl.PadOp: _transposed_pad,
        dl.DilateOp: _dilate,
        dl.ReduceSumOp: _reduce_sum,
        dl.CumsumOp: _cumsum,
        dl.SumPoolOp: _sum_pool,
        dl.MatmulOp: contraction,
        dl.DotGeneralOp: contraction,
        dl.ConvOp: conv,
        dl.GatherOp: gather,
        dl.GatherNdOp: gather_nd,
        dl.GatherElementsOp: gather_elements,
        dl.ScatterRowsOp: scatter_rows,
        dl.MaxPoolGradientOp: max_pool_gradient,
        dl.TriangularSolveOp: _triangular_solve,
    },
)
# Ops that are linear in their float operands jointly, not in each separately.
JOINTLY_LINEAR: tuple[type[DlOp], ...] = (dl.ConcatOp, dl.PadOp, dl.DilateOp, dl.ScatterRowsOp)
# Float operands that have no cotangent, by index: they only select elements, or order execution.
NONDIFFERENTIABLE_OPERANDS: dict[type[DlOp], tuple[int, ...]] = {dl.MaxPoolGradientOp: (0, 1), dl.AddDependencyOp: (1,)}


def find_transpose_rule(op: DlOp, differentiated: Container[SSAValue]) -> Transpose | None:
    """Return the transpose rule of an op, None if it is not linear in its active operands."""
    if isinstance(op, dl.ScatterRowsOp) and op.mode.data not in ("none", "add"):
        return None
    if isinstance(op, dl.TriangularSolveOp) and op.a in differentiated:
        return None
    if isinstance(op, dl.AllReduceOp | dl.ReduceScatterOp) and op.combine.data != "sum":
        return None
    return TRANSPOSE_RULES.get(type(op))

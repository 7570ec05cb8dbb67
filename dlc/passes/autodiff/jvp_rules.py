"""Jvp rules of ops that are neither elementwise nor linear, as linear ops on the tangents.

A rule returns the tangent of the result from those of the operands, None where one is zero. Reverse mode transposes the ops
that a rule emits, so that each rule is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, flag, rank_of, shape_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.location_text import location_prefix
from dlc.errors import UnsupportedError
from dlc.ir import i64
from dlc.passes.autodiff.indexing_transposes import first_in_windows
from dlc.passes.autodiff.term import Term, exp, where
from dlc.passes.dl.rewriting import inverse
from dlc.plugins.tables import ExtensionTable
from dlc.shapes.dims import Size

# (op, first result, operands, tangents of the operands) -> tangent of the first result. Other results have tangent 0.
Rule: TypeAlias = "Callable[[Any, Term, Sequence[Term], Sequence[Term | None]], Term]"


def _single_tangent(tangents: Sequence[Term | None]) -> Term:
    (tangent,) = [t for t in tangents if t is not None]
    return tangent


def _select(op: dl.SelectOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """The tangent of the selected operand."""
    selected = where(operands[0], 0 if tangents[1] is None else tangents[1], 0 if tangents[2] is None else tangents[2])
    return selected.broadcast(*result.shape)


def _with_reduced_axes(value: Term, op: dl.AxisReduction | dl.CompositeReduction) -> Term:
    """Reshape a reduction's result to keep the reduced axes, with size 1."""
    return value.reshape(*(1 if a in op.reduction_axes else s for a, s in enumerate(shape_of(op.x))))


def _reduce_like(value: Term, op: dl.AxisReduction | dl.CompositeReduction) -> Term:
    return value.op(dl.ReduceSumOp, axes=op.reduction_axes, keepdims=op.keeps_reduced_axes)


def _all_reduced_extremum(op: dl.AllReduceOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """The mean of the tangents of all ranks whose element is extreme; the rule of sums is their transpose."""

    def total(x: Term) -> Term:
        return x.op(dl.AllReduceOp, axes=op.axes, group_size=op.group_size, combine="sum")

    is_extreme = operands[0].equals(result)
    tangent = _single_tangent(tangents)
    return total(where(is_extreme, tangent, 0)) / total(is_extreme.cast(element_type_of(tangent.value)))


def _extremum(
    op: dl.ReduceMaxOp | dl.ReduceMinOp | dl.NanIgnoringReduction,
    result: Term,
    operands: Sequence[Term],
    tangents: Sequence[Term | None],
) -> Term:
    """The mean of the tangents of all extreme elements; 0 of an empty reduction."""
    if 0 in shape_of(op.x):
        return result.like(0).broadcast(*result.shape)
    is_extreme = operands[0].equals(_with_reduced_axes(result, op))
    tangent = _single_tangent(tangents).widened()
    count = _reduce_like(is_extreme.cast(element_type_of(tangent.value)), op)
    return (_reduce_like(where(is_extreme, tangent, 0), op) / count).cast(element_type_of(op.x))


def _nan_extremum(op: dl.NanIgnoringReduction, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """The mean of the tangents of all extreme elements; 0 if all are NaN."""
    return where(result.equals(result), _extremum(op, result, operands, tangents), 0)


def _product(op: dl.ReduceProdOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """Σ of each tangent times all other factors, as the product of those before and after it, so that a factor may be 0."""
    axes, shape = op.reduction_axes, shape_of(op.x)
    order = [*(a for a in range(len(shape)) if a not in axes), *axes]
    count: Size = 1
    for a in axes:
        count = shape[a] * count
    factors = operands[0].transpose(*order).reshape(*(shape[a] for a in order[: len(order) - len(axes)]), count)
    last = rank_of(factors.value) - 1
    other_factors = factors.op(dl.CumprodOp, axis=last, exclusive=True) * factors.op(
        dl.CumprodOp, axis=last, exclusive=True, reverse=True
    )
    other_factors = other_factors.reshape(*(shape[a] for a in order)).transpose(*inverse(order))
    return _reduce_like(_single_tangent(tangents) * other_factors, op)


def _cumprod(op: dl.CumprodOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """Compute the tangent by doubling: dy·y' + y·dy', with y the product of the nearest n elements, y' of the n before."""
    axis, (y,), dy = op.cumulative_axis, operands, _single_tangent(tangents)
    size = y.shape[axis]
    if not isinstance(size, int):
        problem = f"has no derivative along a symbolic dimension, axis {axis} of size {size}; make it static"
        raise UnsupportedError(f"{location_prefix(op.location)}{op.name} {problem}")
    if flag(op.exclusive) and size:
        y, dy = (_shifted(op, v, 1, identity) for v, identity in ((y, 1), (dy, 0)))
    distance = 1
    while distance < size:
        earlier_product = _shifted(op, y, distance, 1)
        y, dy = y * earlier_product, dy * earlier_product + y * _shifted(op, dy, distance, 0)
        distance *= 2
    return dy


def _shifted(op: dl.CumprodOp, x: Term, distance: int, identity: int) -> Term:
    """Shift the elements by `distance` in scan direction; fill with `identity`."""
    axis, limits = op.cumulative_axis, list(x.shape)
    starts: list[Size] = [0 for _ in limits]
    low, high = [0 for _ in limits], [0 for _ in limits]
    if flag(op.reverse):
        starts[axis], high[axis] = distance, distance
    else:
        limits[axis], low[axis] = limits[axis] - distance, distance
    return x.op(dl.SliceOp, starts=starts, limits=limits, strides=(1,) * len(limits)).op(dl.PadOp, identity, low=low, high=high)


def _softmax(op: dl.SoftmaxOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """y·(dx - Σ y·dx)"""
    dx = _single_tangent(tangents)
    return result * (dx - (result * dx).sum(*op.row_axes))


def _log_softmax(op: dl.LogSoftmaxOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """dx - Σ exp(y)·dx"""
    dx = _single_tangent(tangents).widened()
    return (dx - (exp(result.widened()) * dx).sum(*op.row_axes)).cast(element_type_of(op.x))


def _log_sum_exp(op: dl.ReduceLogSumExpOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """Σ exp(x - y)·dx. If all x are -inf, y is -inf and the tangent is 0."""
    lowest = -float(np.finfo(numpy_dtype(element_type_of(op.x))).max)
    softmax_weights = exp(operands[0] - _with_reduced_axes(result, op).op(dl.MaximumOp, lowest))
    return _reduce_like(softmax_weights * _single_tangent(tangents), op)


def _norm(op: dl.ReduceL2Op, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """Σ x·dx / y, 0 where y is 0."""
    length = _with_reduced_axes(result, op)
    is_zero = length.equals(0)
    return _reduce_like(where(is_zero, 0, operands[0]) / where(is_zero, 1, length) * _single_tangent(tangents), op)


def _max_pool(op: dl.MaxPoolOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """The tangent of the first maximum of each window."""
    return first_in_windows(op, operands[0], result, _single_tangent(tangents))


def _sort(op: dl.SortOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """The tangents, permuted like the elements."""
    order = operands[0].op(dl.ArgsortOp, axis=op.sorted_axis, descending=op.is_descending)
    return _single_tangent(tangents).op(dl.GatherElementsOp, order, axis=op.sorted_axis)


def _scatter_rows(op: dl.ScatterRowsOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """For max and min: the mean of the tangents of all elements equal to the result."""
    rows, indices, updates = operands
    if op.mode.data == "mul":
        problem = "with mode 'mul' has no derivative; multiply by a product of the updates instead"
        raise UnsupportedError(f"{location_prefix(op.location)}{op.name} {problem}")

    def scatter_add(target: Term, values: Term) -> Term:
        return target.op(dl.ScatterRowsOp, indices, values, mode="add", clamped=op.clamped)

    if rows.shape[0] == 0:
        return rows.like(0).broadcast(*rows.shape)
    is_from_x, is_from_updates = rows.equals(result), updates.equals(result.op(dl.GatherOp, indices, axis=0))
    dx, dy = (
        (v if v is not None else operand.like(0).broadcast(*operand.shape)).widened()
        for v, operand in ((tangents[0], rows), (tangents[2], updates))
    )
    ones = [is_extreme.cast(element_type_of(dx.value)) for is_extreme in (is_from_x, is_from_updates)]
    mean = scatter_add(where(is_from_x, dx, 0), where(is_from_updates, dy, 0)) / scatter_add(*ones)
    return mean.cast(element_type_of(op.x))


def _triangle(x: Term, *, upper: bool, diagonal: bool = True) -> Term:
    """Return the upper or lower triangle of square matrices, with or without the diagonal; 0 elsewhere."""
    n = x.shape[-1]
    columns = Term(x.build, x.build(dl.IotaOp, size=(n,), to=i64, start=0, step=1))
    rows = columns.reshape(n, 1)
    first, last = (rows, columns) if upper else (columns, rows)
    return where(~(first > last) if diagonal else first < last, x, 0)


def _require_real(op: dl.MatrixFactorization) -> None:
    if flag(op.complex):
        problem = "of complex matrices has no derivative; differentiate the functions of dlc.numpy.linalg that use it"
        raise UnsupportedError(f"{location_prefix(op.location)}{op.name} {problem}")


def _triangular_solve(
    op: dl.TriangularSolveOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]
) -> Term:
    """T⁻¹·(db - dT·x)"""
    _require_real(op)
    da, db = tangents
    assert da is not None
    product = _triangle(da, upper=not flag(op.lower), diagonal=not flag(op.unit)).op(dl.MatmulOp, result)
    rhs = -product if db is None else db - product
    return operands[0].op(dl.TriangularSolveOp, rhs, lower=op.lower, unit=op.unit)


def _cholesky(op: dl.CholeskyOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """Φ(U⁻ᵀ·dx·U⁻¹)·U, where Φ is the upper triangle with half the diagonal; dx is symmetrized from its upper triangle.

    Source: Murray, "Differentiation of the Cholesky decomposition" (arXiv:1602.07527).
    """
    _require_real(op)
    dx, lower = _single_tangent(tangents), result.matrix_transpose()
    dx = _triangle(dx, upper=True) + _triangle(dx, upper=True, diagonal=False).matrix_transpose()
    left_solved = lower.op(dl.TriangularSolveOp, dx, lower=True).matrix_transpose()
    inner = lower.op(dl.TriangularSolveOp, left_solved, lower=True)
    return ((_triangle(inner, upper=True) + _triangle(inner, upper=True, diagonal=False)) * 0.5).op(dl.MatmulOp, result)


def _lu(op: dl.LuOp, result: Term, operands: Sequence[Term], tangents: Sequence[Term | None]) -> Term:
    """L·tril(F, -1) + triu(F)·U, with F = L⁻¹·(rows `order` of dx)·U⁻¹."""
    _require_real(op)
    dx, order = _single_tangent(tangents), Term(result.build, op.order)
    rows = order.reshape(*order.shape, 1).broadcast(*result.shape)
    left_solved = result.op(
        dl.TriangularSolveOp, dx.op(dl.GatherElementsOp, rows, axis=len(result.shape) - 2), lower=True, unit=True
    )
    f = result.matrix_transpose().op(dl.TriangularSolveOp, left_solved.matrix_transpose(), lower=True).matrix_transpose()
    strict_lower = _triangle(f, upper=False, diagonal=False)
    inner_product = _triangle(result, upper=False, diagonal=False).op(dl.MatmulOp, strict_lower)
    return strict_lower + inner_product + _triangle(f, upper=True).op(dl.MatmulOp, _triangle(result, upper=True))


JVP_RULES: ExtensionTable[type[DlOp], Rule] = ExtensionTable(
    "jvp_rules",
    {
        dl.SelectOp: _select,
        dl.AllReduceOp: _all_reduced_extremum,
        dl.ReduceMaxOp: _extremum,
        dl.ReduceMinOp: _extremum,
        dl.ReduceNanmaxOp: _nan_extremum,
        dl.ReduceNanminOp: _nan_extremum,
        dl.ReduceProdOp: _product,
        dl.CumprodOp: _cumprod,
        dl.SoftmaxOp: _softmax,
        dl.LogSoftmaxOp: _log_softmax,
        dl.ReduceLogSumExpOp: _log_sum_exp,
        dl.ReduceL2Op: _norm,
        dl.MaxPoolOp: _max_pool,
        dl.ScatterRowsOp: _scatter_rows,
        dl.TriangularSolveOp: _triangular_solve,
        dl.CholeskyOp: _cholesky,
        dl.LuOp: _lu,
        dl.SortOp: _sort,
    },
)

"""Index arrays through affine maps: the operands of `linalg` ops over an iteration space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dlc.backends.reference.values import Array, EvaluationError, describe
from dlc.ir import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    Operation,
)


@dataclass(frozen=True)
class AffineIndex:
    """The affine expression Σ coefficients·iterators + constant."""

    coefficients: tuple[int, ...]
    constant: int


def affine_index(expression: AffineExpr, iterators: int) -> AffineIndex | None:
    """Return the coefficients of an index expression; None if it has floor division or remainder."""
    match expression:
        case AffineConstantExpr():
            return AffineIndex((0,) * iterators, expression.value)
        case AffineDimExpr():
            return AffineIndex(tuple(int(d == expression.position) for d in range(iterators)), 0)
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add | AffineBinaryOpKind.Mul):
            a, b = affine_index(expression.lhs, iterators), affine_index(expression.rhs, iterators)
            if a is None or b is None:
                return None
            if expression.kind is AffineBinaryOpKind.Add:
                total = tuple(x + y for x, y in zip(a.coefficients, b.coefficients, strict=True))
                return AffineIndex(total, a.constant + b.constant)
            if any(a.coefficients):
                a, b = b, a
            return (
                None
                if any(a.coefficients)
                else AffineIndex(tuple(a.constant * y for y in b.coefficients), a.constant * b.constant)
            )
        case _:
            return None


def full_rank(array: Array, iterators: int) -> Array:
    """Add missing axes of size 1, so that the array has an axis of grid points and one axis per iterator."""
    return array.reshape((1,) * (iterators + 1 - array.ndim) + array.shape)


def index_operand(
    op: Operation, array: Array, indices: Sequence[AffineIndex | None], indexing_map: AffineMap, extents: Sequence[int]
) -> Array:
    """Return an array indexed by the iterators: one axis each, after the axis of grid points if `array` has one.

    The result is a view of `array` if the map is affine without division; `indices` are the map's results as affine indices, or
    None.
    """
    num_point_axes = array.ndim - len(indices)
    if 0 not in extents:
        for axis, (index, size) in enumerate(zip(indices, array.shape[num_point_axes:], strict=True)):
            low, high = _range(index, extents) if index is not None else (0, 0)
            if low < 0 or high >= size:
                raise EvaluationError(f"{describe(op)}: {indexing_map} reads {low}..{high} of axis {axis}, of size {size}")
    affine_indices = [index for index in indices if index is not None]
    if len(affine_indices) == len(indices) and 0 not in array.shape and 0 not in extents:
        # The ellipsis preserves a view of a 0-d array; array[()] would copy.
        start = (slice(None),) * num_point_axes + tuple(slice(index.constant, None) for index in affine_indices) + (...,)
        columns = [[index.coefficients[d] for index in affine_indices] for d in range(len(extents))]
        strides = [sum(c * s for c, s in zip(column, array.strides[num_point_axes:], strict=True)) for column in columns]
        shape = [n if any(column) else 1 for n, column in zip(extents, columns, strict=True)]
        return as_strided(array[start], (*array.shape[:num_point_axes], *shape), (*array.strides[:num_point_axes], *strides))
    iterators = np.ogrid[tuple(slice(n) for n in extents)] if extents else ()
    return array[(slice(None),) * num_point_axes + tuple(index_array(e, iterators) for e in indexing_map.results)]


def _range(index: AffineIndex, extents: Sequence[int]) -> tuple[int, int]:
    """Return the minimum and maximum of an index over the iteration space."""
    ends = [c * (n - 1) for c, n in zip(index.coefficients, extents, strict=True)]
    return index.constant + sum(min(e, 0) for e in ends), index.constant + sum(max(e, 0) for e in ends)


def index_array(expression: AffineExpr, iterators: Sequence[Array]) -> Array:
    """Return the value of an index expression at every point of the iteration space, broadcast."""
    match expression:
        case AffineConstantExpr():
            return np.full((1,) * len(iterators), expression.value, np.int64)
        case AffineDimExpr():
            return iterators[expression.position]
        case AffineBinaryOpExpr():
            a, b = index_array(expression.lhs, iterators), index_array(expression.rhs, iterators)
            match expression.kind:
                case AffineBinaryOpKind.Add:
                    return a + b
                case AffineBinaryOpKind.Mul:
                    return a * b
                case AffineBinaryOpKind.FloorDiv:
                    return a // b
                case AffineBinaryOpKind.CeilDiv:
                    return -(-a // b)
                case AffineBinaryOpKind.Mod:
                    return a % b
        case _:
            pass
    raise EvaluationError(f"unsupported index expression {expression}")

"""Arrays indexed through affine maps: `linalg` operands over an iteration space."""

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
class Linear:
    """An index expression Σ coefficients·iterators + constant."""

    coefficients: tuple[int, ...]
    constant: int


def linear(expression: AffineExpr, iterators: int) -> Linear | None:
    """The linear form of an index expression; None with floor division or remainder."""
    match expression:
        case AffineConstantExpr():
            return Linear((0,) * iterators, expression.value)
        case AffineDimExpr():
            return Linear(tuple(int(d == expression.position) for d in range(iterators)), 0)
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add | AffineBinaryOpKind.Mul):
            a, b = linear(expression.lhs, iterators), linear(expression.rhs, iterators)
            if a is None or b is None:
                return None
            if expression.kind is AffineBinaryOpKind.Add:
                total = tuple(x + y for x, y in zip(a.coefficients, b.coefficients, strict=True))
                return Linear(total, a.constant + b.constant)
            if any(a.coefficients):
                a, b = b, a
            return (
                None if any(a.coefficients) else Linear(tuple(a.constant * y for y in b.coefficients), a.constant * b.constant)
            )
        case _:
            return None


def full_rank(array: Array, iterators: int) -> Array:
    """With an axis of points and one per iterator; those that are missing have size 1."""
    return array.reshape((1,) * (iterators + 1 - array.ndim) + array.shape)


def access(
    op: Operation, array: Array, forms: Sequence[Linear | None], indexing_map: AffineMap, extents: Sequence[int]
) -> Array:
    """An array indexed by the iterators: one axis each, after the axis of points if `array` has one.

    A view of `array` if the map is linear (`forms` are its results' linear forms).
    """
    lead = array.ndim - len(forms)
    if 0 not in extents:
        for axis, (form, size) in enumerate(zip(forms, array.shape[lead:], strict=True)):
            low, high = _range(form, extents) if form is not None else (0, 0)
            if low < 0 or high >= size:
                raise EvaluationError(f"{describe(op)}: {indexing_map} reads {low}..{high} of axis {axis}, of size {size}")
    known = [form for form in forms if form is not None]
    if len(known) == len(forms) and 0 not in array.shape and 0 not in extents:
        # The ellipsis keeps a view where there is no axis: array[()] is a copy.
        start = (slice(None),) * lead + tuple(slice(form.constant, None) for form in known) + (...,)
        columns = [[form.coefficients[d] for form in known] for d in range(len(extents))]
        strides = [sum(c * s for c, s in zip(column, array.strides[lead:], strict=True)) for column in columns]
        shape = [n if any(column) else 1 for n, column in zip(extents, columns, strict=True)]
        return as_strided(array[start], (*array.shape[:lead], *shape), (*array.strides[:lead], *strides))
    iterators = np.ogrid[tuple(slice(n) for n in extents)] if extents else ()
    return array[(slice(None),) * lead + tuple(index_array(e, iterators) for e in indexing_map.results)]


def _range(form: Linear, extents: Sequence[int]) -> tuple[int, int]:
    """The least and the greatest value of an index over the iteration space."""
    ends = [c * (n - 1) for c, n in zip(form.coefficients, extents, strict=True)]
    return form.constant + sum(min(e, 0) for e in ends), form.constant + sum(max(e, 0) for e in ends)


def index_array(expression: AffineExpr, iterators: Sequence[Array]) -> Array:
    """The value of an index expression for every point of the iteration space, broadcast."""
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
    raise EvaluationError(f"index expression {expression}")

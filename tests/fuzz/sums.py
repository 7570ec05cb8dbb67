"""Bounds of what is summed, multiplied up or chosen from many: a sum takes the magnitudes that it adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, flag, shape_of, tensor_type
from dlc.dialects.dl.interfaces import Contraction, Window
from dlc.dialects.dl.narrow_numbers.words import parts_of
from dlc.ir import Block, StringAttr, f64, i64
from tests.fuzz.floats import (
    all_whole,
    computed_in,
    extended,
    finite_magnitudes,
    largest_of,
    least_of,
    smallest_of,
    spacing,
    unit_of,
    unless_it_may_overflow,
)
from tests.fuzz.tracked import Tracked
from tests.ops.sample import BF16, F16, F32

# What a contraction may be multiplied by later.
FACTOR = 2.0**16
# How far a number of a precision may be from the f32 that it stands for, and the dtype of it.
PRECISIONS = {"bf16": (2.0**-8, BF16), "f16": (2.0**-11, F16)}


def touched(op: DlOp, operands: Sequence[Tracked]) -> Array:
    """Integers and bools: free where an operand that takes part is."""
    if isinstance(op, Contraction):
        return np.full(shape_of(op.results[0]), np.inf)
    x = operands[0]
    if x.array.dtype == bool:
        ends = [op.evaluate(np.where(x.free, end, x.array))[0] for end in (False, True)]
        return np.where(ends[0] == ends[1], 0.0, np.inf)
    return _sum_of(op)(np.where(x.free, 1.0, 0.0)) * np.inf


def reduced(op: DlOp, x: Tracked, array: Array) -> Array | None:
    if isinstance(op, dl.ReduceMaxOp | dl.ReduceMinOp | dl.NumbersOnly | dl.MaxPoolOp):
        if x.error is None:
            return None
        largest = dl.MaxPoolOp if isinstance(op, Window) else dl.ReduceMaxOp
        wide = _widened(op)
        top = largest.create(operands=wide.operands, properties=wide.properties, result_types=wide.result_types)
        return top.evaluate(np.maximum(x.errors, 0))[0]
    total = _sum_of(op)
    count, magnitudes = total(np.ones(x.array.shape)), finite_magnitudes(x.array)
    unit = unit_of(array.dtype)
    exact = _widened(op).evaluate(x.array.astype(np.float64))[0]
    if isinstance(op, dl.ReduceProdOp | dl.CumprodOp) or (isinstance(op, dl.AccumulateOp) and op.kind.data == "mul"):
        product = _widened(op)
        (low,), (high,) = (product.evaluate(m) for m in (magnitudes, magnitudes + x.errors))
        error = (high - low) + high * count * unit
        error = np.where(np.isfinite(exact) | (total(x.errors) > 0), error, 0)
        error = np.where(_partly_extreme(product, magnitudes, computed_in(array.dtype)), np.inf, error)
        return _last_rounding(exact, error, array)
    sums = total(magnitudes)
    error = total(x.errors) + np.where(np.isfinite(exact), count * unit * sums, 0)
    if x.error is None and all_whole(x.array) and np.max(sums, initial=0) * unit < 1:
        error = np.zeros_like(error)
    return _last_rounding(exact, _unless_overflow(sums, count, error, array), array)


def contracted(op: DlOp, operands: Sequence[Tracked], array: Array, precision: str = "f32") -> Array | None:
    wide, (a, b) = _widened(op), operands

    def of(x: Array, y: Array) -> Array:
        return wide.evaluate(x, y)[0]

    x, y = finite_magnitudes(a.array), finite_magnitudes(b.array)
    count, sums, unit = of(np.ones(x.shape), np.ones(y.shape)), of(x, y), unit_of(array.dtype)
    exact = of(a.array.astype(np.float64), b.array.astype(np.float64))
    # A product of small numbers is rounded to a whole number of the least ones, or is not.
    error = np.where(np.isfinite(exact), count * (unit * sums + least_of(computed_in(array.dtype))), 0)
    if a.error is None and b.error is None and all_whole(a.array) and all_whole(b.array) and np.max(sums, initial=0) * unit < 1:
        error = np.zeros_like(error)
    if a.error is not None or b.error is not None:
        error = error + of(x, b.errors) + of(a.errors, y) + of(a.errors, b.errors)
        # A factor whose sign is not known makes any infinity of an infinite one.
        error = np.where(np.isfinite(exact), error, np.inf)
    if a.array.dtype == b.array.dtype == BF16:
        error = error + _of_words(of, a.array, b.array, count)
    if precision != "f32" and a.array.dtype == b.array.dtype == F32:
        error = error + _of_rounded(of, a, b, count, precision)
    if isinstance(op, dl.ModeProductOp) and op.numbers is not None:
        error = error + _of_known_matrix(of, a.array, b.array)
    if isinstance(op, dl.MatmulOp) and flag(op.rounds_rows):
        error = error + _of_whole_rows(of, a, y)
    # A factor per channel that comes after it may be multiplied into each of the terms.
    return _last_rounding(exact, _unless_overflow(sums * FACTOR, count, error, array), array)


def _of_whole_rows(of: Callable[[Array, Array], Array], rows: Tracked, weights: Array) -> Array:
    """What rows of 8 bits add: half a step, of which the largest of a group has 127. An infinity leaves a row nothing else."""
    largest = np.max(finite_magnitudes(rows.array) + np.where(rows.free, 0, rows.errors), -1, keepdims=True, initial=0)
    added = of(np.broadcast_to(largest / 254, rows.array.shape), weights)
    lost = of(np.where(np.isfinite(rows.array.astype(np.float64)), 0.0, 1.0), np.ones(weights.shape))
    return np.where(lost > 0, np.inf, added)


def _of_known_matrix(of: Callable[[Array, Array], Array], x: Array, matrix: Array) -> Array:
    """What a known matrix changes: nothing is multiplied by its zeros, and what rows share is a sum over one of its numbers."""
    numbers, dtype = np.abs(matrix.astype(np.float64)), computed_in(x.dtype)
    if not np.isfinite(numbers).all():
        return np.zeros(())
    undefined = of(np.where(np.isfinite(x.astype(np.float64)), 0.0, 1.0), np.where(numbers == 0, 1.0, 0.0))
    least = np.min(np.where(numbers > 0, numbers, np.inf), 1, keepdims=True, initial=1.0)
    parts = of(finite_magnitudes(x), numbers / least)
    little = of(np.ones(x.shape), np.broadcast_to(np.max(numbers, 1, keepdims=True, initial=1.0), numbers.shape)) * least_of(
        dtype
    )
    return np.where((undefined > 0) | (parts * 2 > largest_of(dtype)), np.inf, little)


def _of_rounded(of: Callable[[Array, Array], Array], a: Tracked, b: Tracked, count: Array, precision: str) -> Array:
    """What the rounding of both factors adds: (2u + u²) · Σ |x| |w|; infinities where one is beyond the largest number."""
    u, dtype = PRECISIONS[precision]
    x, y = (finite_magnitudes(v.array) + np.where(v.free, 0, v.errors) for v in (a, b))
    # Numbers below the normal ones are further from what they stand for.
    little = smallest_of(dtype) * (of(x, np.ones(y.shape)) + of(np.ones(x.shape), y) + count * smallest_of(dtype))
    beyond = of(x > largest_of(dtype), np.ones(y.shape)) + of(np.ones(x.shape), y > largest_of(dtype))
    error = (2 * u + u * u) * of(x, y) + little
    if dtype == BF16:
        error = error + _of_words(of, a.array, b.array, count)
    return np.where(beyond > 0, np.inf, error)


def _of_words(of: Callable[[Array, Array], Array], a: Array, b: Array, count: Array) -> Array:
    """What processors add that multiply pairs of bf16: they take numbers and sums below the normal ones for 0."""
    x, y = (np.abs(v.astype(np.float64)) for v in (a, b))
    (few, little), (infinite, unbounded) = ([np.where(v < smallest_of(BF16), v, 0) for v in (x, y)], (np.isinf(x), np.isinf(y)))
    taken = of(few, finite_magnitudes(y)) + of(finite_magnitudes(x), little) + 2 * count * smallest_of(BF16)
    undefined = of(few > 0, unbounded) + of(infinite, little > 0)
    return np.where(undefined > 0, np.inf, taken)


def contracted_with_words(op: dl.MatmulWordsOp, operands: Sequence[Tracked], array: Array) -> Array:
    """As with weights in floats; what the zero points take off may be taken off sums, so that infinities may cancel."""
    x, words, scale, *zero = operands
    weights = parts_of(words.array, 1, op.of).astype(np.float64)
    zeros = zero[0].array.astype(np.float64)[:, None] if zero else np.zeros(1)
    scales, n = scale.array.astype(np.float64)[:, None], words.array.shape[2]
    magnitudes = ((np.abs(weights) + zeros) * scales).reshape(-1, n)
    # Two roundings make a weight, two more take the zero points off.
    count, sums = len(magnitudes) + 4, finite_magnitudes(x.array) @ magnitudes
    exact = x.array.astype(np.float64) @ ((weights - zeros) * scales).reshape(-1, n)
    error = np.where(np.isfinite(exact), count * unit_of(array.dtype) * sums + x.errors @ magnitudes, np.inf)
    return _last_rounding(exact, _unless_overflow(sums * FACTOR, np.full(sums.shape, count), error, array), array)


def contracted_with_dots(op: dl.MatmulDotsOp, operands: Sequence[Tracked], array: Array) -> Array:
    """Integers may be taken for others without a sign, and zero points with them."""
    x, words, *parameters = (o.array for o in operands)
    rows, weights = op.integers(x, words)
    row_scale, row_sums, scale, *zero = (v.astype(np.float64) for v in parameters)

    def total(rows: Array, weights: Array, offsets: Array) -> Array:
        return np.einsum("...bwn,bn->...n", np.einsum("...bwk,bwkn->...bwn", rows, weights) + offsets, scale)

    rows, zeros = rows * row_scale[..., None, None], (zero[0] if zero else np.zeros(scale.shape))[:, None]
    exact = total(rows, weights.astype(np.float64), -row_sums[..., None] * zeros)
    sums = total(np.abs(rows), np.abs(weights) + op.middle, np.abs(row_sums)[..., None] * (np.abs(zeros) + op.middle))
    # Before it is added, a sum over the words of a step is converted, multiplied twice, and a zero point taken off.
    count = np.full(sums.shape, weights.shape[0] * weights.shape[1] + 4)
    error = count * unit_of(array.dtype) * sums
    return _last_rounding(exact, _unless_overflow(sums * FACTOR, count, error, array), array)


def in_another_order(op: dl.ScatterElementsOp | dl.ScatterNdOp | dl.ScatterRowsOp, operands: Sequence[Tracked]) -> Array:
    """What the roundings of sums or products of updates come to."""
    x, indices, updates = operands
    mode = op.mode.data if isinstance(op, dl.ScatterRowsOp) else op.combination
    block = Block(arg_types=[tensor_type(o.array.shape, i64 if o is indices else f64) for o in operands])

    def of(a: Array, b: Array, mode: str) -> Array:
        properties = {**op.properties, "mode": StringAttr(mode)}
        return type(op).make(*block.args, **properties).evaluate(a, indices.array.astype(np.int64), b)[0]

    count = of(np.zeros(x.array.shape), np.ones(updates.array.shape), "add")
    return count * unit_of(x.array.dtype) * of(finite_magnitudes(x.array), finite_magnitudes(updates.array), mode)


def _sum_of(op: DlOp) -> Callable[[Array], Array]:
    """The sums over what an op on one operand reduces, in f64."""
    wide = _widened(op)
    if isinstance(op, dl.CumsumOp | dl.CumprodOp):
        total: DlOp = dl.CumsumOp.create(operands=wide.operands, properties=wide.properties, result_types=wide.result_types)
    elif isinstance(op, dl.AccumulateOp):
        properties = {**wide.properties, "kind": StringAttr("add")}
        total = dl.AccumulateOp.create(operands=wide.operands, properties=properties, result_types=wide.result_types)
    elif isinstance(op, Window):
        total = dl.SumPoolOp.create(operands=wide.operands, properties=wide.properties, result_types=wide.result_types)
    else:
        total = dl.ReduceSumOp.create(operands=wide.operands, properties=wide.properties, result_types=wide.result_types)
    return lambda x: total.evaluate(x)[0]


def _widened(op: DlOp) -> DlOp:
    """The op on f64."""
    block = Block(arg_types=[tensor_type(shape_of(v), f64) for v in op.operands])
    properties = {k: v for k, v in op.properties.items() if k not in ("result", "numbers")}
    wide = type(op).create(operands=block.args, properties=properties)
    wide.set_result_types(wide.infer())
    return wide


def _partly_extreme(product: DlOp, magnitudes: Array, dtype: np.dtype) -> Array:
    """Where a product of some of the factors may overflow or vanish, though the whole does not."""
    factors = np.where(magnitudes == 0, 1, magnitudes)
    (most,), (least,) = (product.evaluate(f(factors, 1)) for f in (np.maximum, np.minimum))
    return (most > largest_of(dtype) / 2) | (least < smallest_of(dtype) * 2)


def _unless_overflow(sums: Array, count: Array, error: Array, array: Array) -> Array:
    """The error, infinite where a sum of some of the magnitudes may overflow."""
    return np.where(sums * (1 + count * unit_of(array.dtype)) >= largest_of(computed_in(array.dtype)), np.inf, error)


def _last_rounding(exact: Array, error: Array, array: Array) -> Array:
    """A sum's error, with what the rounding to the result's type may add; f16 and bf16 are summed in f32."""
    if array.dtype.itemsize == 2:
        error = np.where(error > 0, error + spacing(array), error)
    # Products and sums below the normal numbers lose digits that no relative bound has.
    error = np.where(error > 0, error + 4 * spacing(np.zeros((), computed_in(array.dtype))), error)
    return unless_it_may_overflow(extended(exact), error, array.dtype)

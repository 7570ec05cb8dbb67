"""Error bounds of sums, products, extrema and contractions: a sum uses the magnitudes of its terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, shape_of, tensor_type
from dlc.dialects.dl.interfaces import Contraction, Window
from dlc.dialects.dl.low_precision.packed_dot import unpack_words
from dlc.ir import Block, StringAttr, f64, i64
from dlc.testing.sample import BF16, F16, F32
from tests.fuzz.bounded_value import BoundedArray
from tests.fuzz.floats import (
    are_integers,
    compute_dtype,
    epsilon_of,
    finite_magnitudes,
    largest_of,
    smallest_normal_of,
    smallest_subnormal_of,
    spacing,
    unbounded_near_overflow,
    widen,
)

# A later per-channel scale, which may be folded into a contraction's terms, is assumed to be at most this.
MAX_LATER_SCALE = 2.0**16
# The relative rounding error of each precision, and its dtype.
PRECISIONS = {"bf16": (2.0**-8, BF16), "f16": (2.0**-11, F16)}


def integer_error(op: DlOp, operands: Sequence[BoundedArray]) -> Array:
    """Return the errors of integer and bool reductions: unbounded where an operand is."""
    if isinstance(op, Contraction):
        return np.full(shape_of(op.results[0]), np.inf)
    x = operands[0]
    if x.array.dtype == bool:
        ends = [op.evaluate(np.where(x.unbounded, end, x.array))[0] for end in (False, True)]
        return np.where(ends[0] == ends[1], 0.0, np.inf)
    return _sum_over_reduced(op)(np.where(x.unbounded, 1.0, 0.0)) * np.inf


def reduction_error(op: DlOp, x: BoundedArray, array: Array) -> Array | None:
    if isinstance(op, dl.ReduceMaxOp | dl.ReduceMinOp | dl.NanIgnoringReduction | dl.MaxPoolOp):
        if x.error is None:
            return None
        largest = dl.MaxPoolOp if isinstance(op, Window) else dl.ReduceMaxOp
        wide = _in_f64(op)
        top = largest.create(operands=wide.operands, properties=wide.properties, result_types=wide.result_types)
        return top.evaluate(np.maximum(x.errors, 0))[0]
    total = _sum_over_reduced(op)
    count, magnitudes = total(np.ones(x.array.shape)), finite_magnitudes(x.array)
    unit = epsilon_of(array.dtype)
    exact = _in_f64(op).evaluate(x.array.astype(np.float64))[0]
    if isinstance(op, dl.ReduceProdOp | dl.CumprodOp) or (isinstance(op, dl.AccumulateOp) and op.kind.data == "mul"):
        product = _in_f64(op)
        (low,), (high,) = (product.evaluate(m) for m in (magnitudes, magnitudes + x.errors))
        error = (high - low) + high * count * unit
        error = np.where(np.isfinite(exact) | (total(x.errors) > 0), error, 0)
        error = np.where(_partly_extreme(product, magnitudes, compute_dtype(array.dtype)), np.inf, error)
        return _add_final_rounding(exact, error, array)
    sums = total(magnitudes)
    error = total(x.errors) + np.where(np.isfinite(exact), count * unit * sums, 0)
    if x.error is None and are_integers(x.array) and np.max(sums, initial=0) * unit < 1:
        error = np.zeros_like(error)
    return _add_final_rounding(exact, _unbounded_on_overflow(sums, count, error, array), array)


def contraction_error(op: DlOp, operands: Sequence[BoundedArray], array: Array, precision: str = "f32") -> Array | None:
    wide, (a, b) = _in_f64(op), operands

    def contract(x: Array, y: Array) -> Array:
        return wide.evaluate(x, y)[0]

    x, y = finite_magnitudes(a.array), finite_magnitudes(b.array)
    count, sums, unit = contract(np.ones(x.shape), np.ones(y.shape)), contract(x, y), epsilon_of(array.dtype)
    exact = contract(a.array.astype(np.float64), b.array.astype(np.float64))
    # A product of small values may be rounded to a multiple of the smallest subnormal.
    error = np.where(np.isfinite(exact), count * (unit * sums + smallest_subnormal_of(compute_dtype(array.dtype))), 0)
    if (
        a.error is None
        and b.error is None
        and are_integers(a.array)
        and are_integers(b.array)
        and np.max(sums, initial=0) * unit < 1
    ):
        error = np.zeros_like(error)
    if a.error is not None or b.error is not None:
        error = error + contract(x, b.errors) + contract(a.errors, y) + contract(a.errors, b.errors)
        # A factor of unknown sign makes an infinite product unbounded.
        error = np.where(np.isfinite(exact), error, np.inf)
    if a.array.dtype == b.array.dtype == BF16:
        error = error + _bf16_dot_error(contract, a.array, b.array, count)
    if precision != "f32" and a.array.dtype == b.array.dtype == F32:
        error = error + _precision_error(contract, a, b, count, precision)
    if isinstance(op, dl.ModeProductOp) and op.matrix_values is not None:
        error = error + _constant_matrix_error(contract, a.array, b.array)
    if isinstance(op, dl.MatmulOp) and op.min_lhs_bits is not None:
        error = error + _row_quantization_error(contract, a, y)
    # A later per-channel scale may be folded into each of the terms.
    return _add_final_rounding(exact, _unbounded_on_overflow(sums * MAX_LATER_SCALE, count, error, array), array)


def _row_quantization_error(contract: Callable[[Array, Array], Array], rows: BoundedArray, weights: Array) -> Array:
    """Return the error of int8 activations: half a step of 1/127 of a row's largest element.

    An infinite element makes a row unbounded.
    """
    largest = np.max(finite_magnitudes(rows.array) + np.where(rows.unbounded, 0, rows.errors), -1, keepdims=True, initial=0)
    added = contract(np.broadcast_to(largest / 254, rows.array.shape), weights)
    lost = contract(np.where(np.isfinite(rows.array.astype(np.float64)), 0.0, 1.0), np.ones(weights.shape))
    return np.where(lost > 0, np.inf, added)


def _constant_matrix_error(contract: Callable[[Array, Array], Array], x: Array, matrix: Array) -> Array:
    """Return the error of a constant matrix: zeros are not multiplied, and rows share common subexpressions."""
    coefficients, dtype = np.abs(matrix.astype(np.float64)), compute_dtype(x.dtype)
    if not np.isfinite(coefficients).all():
        return np.zeros(())
    undefined = contract(np.where(np.isfinite(x.astype(np.float64)), 0.0, 1.0), np.where(coefficients == 0, 1.0, 0.0))
    smallest = np.min(np.where(coefficients > 0, coefficients, np.inf), 1, keepdims=True, initial=1.0)
    scaled_sum = contract(finite_magnitudes(x), coefficients / smallest)
    subnormal_error = contract(
        np.ones(x.shape), np.broadcast_to(np.max(coefficients, 1, keepdims=True, initial=1.0), coefficients.shape)
    ) * smallest_subnormal_of(dtype)
    return np.where((undefined > 0) | (scaled_sum * 2 > largest_of(dtype)), np.inf, subnormal_error)


def _precision_error(
    contract: Callable[[Array, Array], Array], a: BoundedArray, b: BoundedArray, count: Array, precision: str
) -> Array:
    """Return the error of rounding both factors: (2u + u²) · Σ |x| |w|; infinite where a factor overflows."""
    u, dtype = PRECISIONS[precision]
    x, y = (finite_magnitudes(v.array) + np.where(v.unbounded, 0, v.errors) for v in (a, b))
    # Subnormal values have larger relative errors.
    subnormal_error = smallest_normal_of(dtype) * (
        contract(x, np.ones(y.shape)) + contract(np.ones(x.shape), y) + count * smallest_normal_of(dtype)
    )
    overflowing = contract(x > largest_of(dtype), np.ones(y.shape)) + contract(np.ones(x.shape), y > largest_of(dtype))
    error = (2 * u + u * u) * contract(x, y) + subnormal_error
    if dtype == BF16:
        error = error + _bf16_dot_error(contract, a.array, b.array, count)
    return np.where(overflowing > 0, np.inf, error)


def _bf16_dot_error(contract: Callable[[Array, Array], Array], a: Array, b: Array, count: Array) -> Array:
    """Return the error of bf16 dot-product instructions, which flush subnormal operands and sums to zero."""
    x, y = (np.abs(v.astype(np.float64)) for v in (a, b))
    (left_subnormals, right_subnormals), (left_infinite, right_infinite) = (
        [np.where(v < smallest_normal_of(BF16), v, 0) for v in (x, y)],
        (np.isinf(x), np.isinf(y)),
    )
    flushed = (
        contract(left_subnormals, finite_magnitudes(y))
        + contract(finite_magnitudes(x), right_subnormals)
        + 2 * count * smallest_normal_of(BF16)
    )
    undefined = contract(left_subnormals > 0, right_infinite) + contract(left_infinite, right_subnormals > 0)
    return np.where(undefined > 0, np.inf, flushed)


def weight_only_error(op: dl.MatmulWeightOnlyOp, operands: Sequence[BoundedArray], array: Array) -> Array:
    """Return the error of a contraction with weight-only quantized weights.

    Zero points may be subtracted from the sums, so that infinities may cancel.
    """
    x, words, scale, *zero = operands
    weights = unpack_words(words.array, 1, op.of).astype(np.float64)
    zeros = zero[0].array.astype(np.float64)[:, None] if zero else np.zeros(1)
    scales, n = scale.array.astype(np.float64)[:, None], words.array.shape[2]
    magnitudes = ((np.abs(weights) + zeros) * scales).reshape(-1, n)
    # Dequantizing a weight takes two roundings, subtracting the zero points two more.
    count, sums = len(magnitudes) + 4, finite_magnitudes(x.array) @ magnitudes
    exact = x.array.astype(np.float64) @ ((weights - zeros) * scales).reshape(-1, n)
    error = np.where(np.isfinite(exact), count * epsilon_of(array.dtype) * sums + x.errors @ magnitudes, np.inf)
    return _add_final_rounding(
        exact, _unbounded_on_overflow(sums * MAX_LATER_SCALE, np.full(sums.shape, count), error, array), array
    )


def weight_only_dot_error(op: dl.MatmulWeightOnlyDotOp, operands: Sequence[BoundedArray], array: Array) -> Array:
    """Return the error of an integer dot product with weight-only quantized weights."""
    x, words, *parameters = (o.array for o in operands)
    rows, weights = op.unpack_integers(x, words)
    row_scale, row_sums, scale, *zero = (v.astype(np.float64) for v in parameters)

    def total(rows: Array, weights: Array, offsets: Array) -> Array:
        return np.einsum("...bwn,bn->...n", np.einsum("...bwk,bwkn->...bwn", rows, weights) + offsets, scale)

    rows, zeros = rows * row_scale[..., None, None], (zero[0] if zero else np.zeros(scale.shape))[:, None]
    # Without zero points, the sums are the start of the integer sum.
    offsets = -row_sums[..., None] * zeros if zero else (row_sums * row_scale[..., None])[..., None]
    exact = total(rows, weights.astype(np.float64), offsets)
    sums = total(np.abs(rows), np.abs(weights).astype(np.float64), np.abs(offsets))
    # Before it is accumulated, a partial sum is converted, multiplied twice, and corrected by a zero point.
    count = np.full(sums.shape, weights.shape[0] * weights.shape[1] + 4)
    error = count * epsilon_of(array.dtype) * sums
    return _add_final_rounding(exact, _unbounded_on_overflow(sums * MAX_LATER_SCALE, count, error, array), array)


def reordering_error(op: dl.ScatterElementsOp | dl.ScatterNdOp | dl.ScatterRowsOp, operands: Sequence[BoundedArray]) -> Array:
    """Return the rounding errors of combining updates in any order."""
    x, indices, updates = operands
    mode = op.mode.data if isinstance(op, dl.ScatterRowsOp) else op.combination
    block = Block(arg_types=[tensor_type(o.array.shape, i64 if o is indices else f64) for o in operands])

    def scatter(a: Array, b: Array, mode: str) -> Array:
        properties = {**op.properties, "mode": StringAttr(mode)}
        return type(op).make(*block.args, **properties).evaluate(a, indices.array.astype(np.int64), b)[0]

    count = scatter(np.zeros(x.array.shape), np.ones(updates.array.shape), "add")
    return count * epsilon_of(x.array.dtype) * scatter(finite_magnitudes(x.array), finite_magnitudes(updates.array), mode)


def _sum_over_reduced(op: DlOp) -> Callable[[Array], Array]:
    """Return a function that sums over the axes that an op reduces, in f64."""
    wide = _in_f64(op)
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


def _in_f64(op: DlOp) -> DlOp:
    """Return the op on f64 operands."""
    block = Block(arg_types=[tensor_type(shape_of(v), f64) for v in op.operands])
    properties = {k: v for k, v in op.properties.items() if k not in ("result", "matrix_values")}
    wide = type(op).create(operands=block.args, properties=properties)
    wide.set_result_types(wide.infer())
    return wide


def _partly_extreme(product: DlOp, magnitudes: Array, dtype: np.dtype) -> Array:
    """Return where a product of some of the factors may overflow or underflow although the whole does not."""
    factors = np.where(magnitudes == 0, 1, magnitudes)
    (most,), (smallest,) = (product.evaluate(f(factors, 1)) for f in (np.maximum, np.minimum))
    return (most > largest_of(dtype) / 2) | (smallest < smallest_normal_of(dtype) * 2)


def _unbounded_on_overflow(sums: Array, count: Array, error: Array, array: Array) -> Array:
    """Return the error, infinite where a partial sum may overflow."""
    return np.where(sums * (1 + count * epsilon_of(array.dtype)) >= largest_of(compute_dtype(array.dtype)), np.inf, error)


def _add_final_rounding(exact: Array, error: Array, array: Array) -> Array:
    """Add the rounding to the result's type to a sum's error; half precision is accumulated in f32."""
    if array.dtype.itemsize == 2:
        error = np.where(error > 0, error + spacing(array), error)
    # Subnormal products and sums have absolute errors that a relative bound does not cover.
    error = np.where(error > 0, error + 4 * spacing(np.zeros((), compute_dtype(array.dtype))), error)
    return unbounded_near_overflow(widen(exact), error, array.dtype)

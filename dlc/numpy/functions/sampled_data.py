"""Sampled data: gradients, differences, phase unwrapping and covariances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlc.errors import ArgumentError, DTypeError, ShapeError
from dlc.numpy.apply import (
    AnyDType,
    ArrayLike,
    Axes,
    Operand,
    convert,
    in_float32_or_wider,
    normalize_axes,
    normalize_axis,
    operand,
    promote,
    promote_to_float,
    refuse,
)
from dlc.numpy.componentwise import componentwise
from dlc.numpy.functions.comparison import equal, greater, less, logical_and, maximum, minimum
from dlc.numpy.functions.cumulative import cumsum, diff
from dlc.numpy.functions.elementwise import abs, add, divide, multiply, remainder, sqrt, subtract, where
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.matrix_products import matmul
from dlc.numpy.functions.reductions import average, mean, sum
from dlc.numpy.functions.shape_manipulation import diagonal, expand_dims, matrix_transpose, ravel, reshape, slice_axis
from dlc.shapes.traced_dims import untraced

__all__ = ["corrcoef", "cov", "ediff1d", "gradient", "unwrap"]


@componentwise("f")
def gradient(f: ArrayLike, /, *spacing: ArrayLike, axis: Axes = None, edge_order: int = 1) -> Any:
    """Return the gradient along each axis by second-order differences, one-sided at the ends; a tuple for several axes.

    `spacing` is the distance of the samples, or a vector of their coordinates: one for all axes, or one for each. The
    differences at the ends are of order `edge_order`, 1 or 2.
    """
    (f,) = promote_to_float(f)
    axes = normalize_axes("gradient", f, axis)
    if edge_order not in (1, 2):
        refuse(ArgumentError(f"gradient: edge_order {edge_order}; expected 1 or 2"))
    if len(spacing) not in (0, 1, len(axes)):
        refuse(DTypeError(f"gradient: {len(spacing)} spacings for {len(axes)} axes; expected one, or one for each axis"))
    steps = spacing if len(spacing) == len(axes) else [*spacing, 1.0][:1] * len(axes)
    gradients = [_gradient_along_axis(f, a, convert(step, f.dtype), edge_order) for a, step in zip(axes, steps, strict=True)]
    return gradients[0] if len(gradients) == 1 else tuple(gradients)


def _gradient_along_axis(f: Operand, axis: int, spacing: Operand, edge_order: int) -> Any:
    size = f.shape[axis]
    if size < edge_order + 1:
        refuse(ShapeError(f"gradient: size {size} of axis {axis} of shape {f.shape}; expected at least {edge_order + 1}"))
    if spacing.ndim > 1 or (spacing.ndim and untraced(spacing.shape) != untraced((size,))):
        refuse(ShapeError(f"gradient: coordinates of shape {spacing.shape} for size {size} of axis {axis}"))
    if spacing.ndim:
        distances = reshape(diff(spacing), [size - 1 if a == axis else 1 for a in range(f.ndim)])
        slopes = divide(diff(f, axis=axis), distances)
        # The slope at an inner point is the mean of those of the adjacent intervals, weighted by the other interval.
        (left, right), (left_slope, right_slope) = (
            (slice_axis(v, axis, 0, size - 2), slice_axis(v, axis, 1, size - 1)) for v in (distances, slopes)
        )
        weight = divide(left, add(left, right))
        interior = add(left_slope, multiply(weight, subtract(right_slope, left_slope)))
        first, last = (slice_axis(slopes, axis, k, k + 1) for k in (0, size - 2))
    else:
        differences = (subtract(slice_axis(f, axis, k + 1, k + 2), slice_axis(f, axis, k, k + 1)) for k in (0, size - 2))
        first, last = (divide(difference, spacing) for difference in differences)
        difference = subtract(slice_axis(f, axis, 2, size), slice_axis(f, axis, 0, size - 2))
        interior = divide(multiply(difference, 0.5), spacing)
    if edge_order == 2:
        # The parabola through three points: the slope changes by as much on both sides of the middle of the outer interval.
        first = subtract(multiply(first, 2), slice_axis(interior, axis, 0, 1))
        last = subtract(multiply(last, 2), slice_axis(interior, axis, size - 3, size - 2))
    return concat([first, interior, last], axis=axis)


def ediff1d(x: ArrayLike, /, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Any:
    """Return the differences of consecutive elements of the flattened array, between `to_begin` and `to_end`."""
    differences = diff(ravel(x))
    boundary_arrays = [ravel(convert(e, differences.dtype)) if e is not None else None for e in (to_begin, to_end)]
    return concat([e for e in (boundary_arrays[0], differences, boundary_arrays[1]) if e is not None], axis=0)


def unwrap(x: ArrayLike, /, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi) -> Any:
    """Unwrap phases: reduce jumps of more than half a `period`, or `discont`, by adding multiples of the period."""
    (x,) = promote_to_float(x)
    axis = normalize_axis("unwrap", x, axis)
    step, half = diff(x, axis=axis), period / 2
    wrapped_step = subtract(remainder(add(step, half), period), half)
    wrapped_step = where(logical_and(equal(wrapped_step, -half), greater(step, 0)), half, wrapped_step)
    change = where(less(abs(step), half if discont is None else max(discont, half)), 0, subtract(wrapped_step, step))
    return concat([slice_axis(x, axis, 0, 1), add(slice_axis(x, axis, 1, x.shape[axis]), cumsum(change, axis=axis))], axis=axis)


def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    *,
    dtype: AnyDType = None,
) -> Any:
    """Return the covariance matrix of the variables in the rows of `m` (columns unless `rowvar`) and of `y`.

    The divisor is the number of samples minus `ddof`, by default 1, or 0 if `bias`. `fweights`: how often each sample occurs;
    `aweights`: a weight for each sample.
    """
    if ddof is not None and ddof != int(ddof):
        refuse(ArgumentError(f"cov: ddof {ddof}; expected an integer"))
    rows = [_variables(v if dtype is None else convert(v, dtype), rowvar) for v in (m, y) if v is not None]
    correction = (0 if bias else 1) if ddof is None else ddof

    @in_float32_or_wider
    def covariance(x: Operand) -> Any:
        if fweights is None and aweights is None:
            x = subtract(x, mean(x, axis=1, keepdims=True))
            weighted, count = x, maximum(x.shape[1] - correction, 0)
        else:
            frequencies, importances = (_sample_weights(w, x) for w in (fweights, aweights))
            weights = multiply(frequencies, importances)
            total = sum(weights)
            x = subtract(x, expand_dims(average(x, 1, weights), 1))
            weighted = multiply(x, weights)
            correction_weight = divide(sum(multiply(weights, importances)), total)
            count = subtract(total, multiply(correction_weight, correction)) if correction else total
        return divide(matmul(weighted, matrix_transpose(x)), convert(count, x.dtype))

    product: Any = covariance(operand(concat(promote(*rows), axis=0)))
    return product[0, 0] if 1 <= product.shape[0] < 2 else product


def _sample_weights(weights: ArrayLike | None, x: Operand) -> Any:
    """Return a weight for each sample, 1 by default."""
    if weights is None:
        return np.ones((x.shape[1],), x.dtype)
    w = operand(weights)
    if untraced(w.shape) != untraced(x.shape[1:]):
        refuse(ShapeError(f"cov: weights of shape {w.shape}; expected one for each of {x.shape[1]} samples"))
    return convert(w, x.dtype)


def _variables(v: ArrayLike, rowvar: bool) -> Operand:
    (v,) = promote_to_float(v)
    if v.ndim > 2:
        refuse(ShapeError(f"cov: array of shape {v.shape}; expected at most two axes, variables and samples"))
    rows: Operand = v if v.ndim == 2 else reshape(v, (1, -1))
    return rows if rowvar or v.ndim < 2 else matrix_transpose(rows)


def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, *, dtype: AnyDType = None) -> Any:
    """Return the correlation matrix: covariances divided by both standard deviations, from -1 to 1."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return divide(c, c)
    deviations = sqrt(diagonal(c))
    return minimum(maximum(divide(divide(c, expand_dims(deviations, 1)), deviations), -1), 1)

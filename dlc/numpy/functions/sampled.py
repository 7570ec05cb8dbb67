"""Samples of functions and of random variables: slopes, polynomials, angles that go on, covariances."""

from __future__ import annotations

import math
from typing import Any

from dlc.errors import ShapeError
from dlc.numpy.apply import ArrayLike, Axes, Operand, axes_of, axis_of, convert, operand, promote, promote_to_float, refuse
from dlc.numpy.functions.comparing import equal, greater, less, logical_and, maximum, minimum
from dlc.numpy.functions.elementwise import abs, add, divide, multiply, remainder, sqrt, square, subtract, where
from dlc.numpy.functions.joining import concat
from dlc.numpy.functions.linear import matmul
from dlc.numpy.functions.reductions import average, mean, sum
from dlc.numpy.functions.running import cumsum, diff
from dlc.numpy.functions.shaping import diagonal, expand_dims, matrix_transpose, part, ravel, reshape

__all__ = ["corrcoef", "cov", "ediff1d", "gradient", "polyval", "unwrap"]


def gradient(f: ArrayLike, /, *spacing: ArrayLike, axis: Axes = None, edge_order: int = 1) -> Any:
    """The slope along each axis by differences on both sides, at the ends on one side; a tuple for several axes.

    `spacing`: the distance of the samples, one number for all axes or one for each. Only `edge_order` 1.
    """
    (f,) = promote_to_float(f)
    axes = axes_of("gradient", f, axis)
    if edge_order != 1:
        refuse(ShapeError(f"gradient: edge_order {edge_order}; expected 1, one difference at an end"))
    if len(spacing) not in (0, 1, len(axes)) or any(operand(s).ndim for s in spacing):
        refuse(ShapeError(f"gradient: {len(spacing)} distances along {len(axes)} axes; give one number, or one for each axis"))
    steps = spacing if len(spacing) == len(axes) else [*spacing, 1.0][:1] * len(axes)
    slopes = [_slope(f, a, step) for a, step in zip(axes, steps, strict=True)]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _slope(f: Operand, axis: int, step: ArrayLike) -> Any:
    size = f.shape[axis]
    if size < 2:
        refuse(ShapeError(f"gradient: {size} samples along axis {axis} of {f.shape}; expected two or more"))
    first, last = (subtract(part(f, axis, k + 1, k + 2), part(f, axis, k, k + 1)) for k in (0, size - 2))
    inside = multiply(subtract(part(f, axis, 2, size), part(f, axis, 0, size - 2)), 0.5)
    return divide(concat([first, inside, last], axis=axis), convert(step, f.dtype))


def ediff1d(x: ArrayLike, /, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Any:
    """The differences of neighbours in the flattened array, between `to_begin` and `to_end`."""
    differences = diff(ravel(x))
    ends = [ravel(convert(e, differences.dtype)) if e is not None else None for e in (to_begin, to_end)]
    return concat([e for e in (ends[0], differences, ends[1]) if e is not None], axis=0)


def unwrap(x: ArrayLike, /, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi) -> Any:
    """Angles that go on: neighbours further apart than half a `period`, or `discont`, come closer by whole periods."""
    (x,) = promote_to_float(x)
    axis = axis_of("unwrap", x, axis)
    step, half = diff(x, axis=axis), period / 2
    near = subtract(remainder(add(step, half), period), half)
    near = where(logical_and(equal(near, -half), greater(step, 0)), half, near)
    change = where(less(abs(step), half if discont is None else max(discont, half)), 0, subtract(near, step))
    return concat([part(x, axis, 0, 1), add(part(x, axis, 1, x.shape[axis]), cumsum(change, axis=axis))], axis=axis)


def polyval(p: ArrayLike, x: ArrayLike, /) -> Any:
    """The polynomial with the coefficients `p`, that of the highest power first, at `x`; by Horner's rule."""
    coefficients, x = promote(p, x)
    if coefficients.ndim != 1:
        refuse(ShapeError(f"polyval: coefficients of shape {coefficients.shape}; expected a vector"))
    value: Any = multiply(x, 0)
    for k in range(coefficients.shape[0]):
        value = add(multiply(value, x), reshape(part(coefficients, 0, k, k + 1), ()))
    return value


def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    *,
    aweights: ArrayLike | None = None,
) -> Any:
    """The covariances of the rows of `m` (columns unless `rowvar`), and of `y`'s: of variables whose samples are along a row.

    Sums are divided by the number of samples less `ddof`, which is 1, or 0 with `bias`. `aweights`: a weight for each sample.
    """
    rows = [_variables(v, rowvar) for v in (m, y) if v is not None]
    x = operand(concat(promote(*rows), axis=0))
    less_by = (0 if bias else 1) if ddof is None else ddof
    if aweights is None:
        x = subtract(x, mean(x, axis=1, keepdims=True))
        weighted, count = x, max(x.shape[1] - less_by, 0)
    else:
        weights = convert(aweights, x.dtype)
        total = sum(weights)
        x = subtract(x, expand_dims(average(x, 1, weights), 1))
        weighted = multiply(x, weights)
        count = subtract(total, divide(multiply(sum(square(weights)), less_by), total)) if less_by else total
    product: Any = divide(matmul(weighted, matrix_transpose(x)), convert(count, x.dtype))
    return product[0, 0] if 1 <= product.shape[0] < 2 else product


def _variables(v: ArrayLike, rowvar: bool) -> Operand:
    (v,) = promote_to_float(v)
    if v.ndim > 2:
        refuse(ShapeError(f"cov: an array of shape {v.shape}; expected samples of variables, two axes at most"))
    rows: Operand = v if v.ndim == 2 else reshape(v, (1, -1))
    return rows if rowvar or v.ndim < 2 else matrix_transpose(rows)


def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True) -> Any:
    """The correlations of what `cov` takes: covariances by both standard deviations, from -1 to 1."""
    c = cov(x, y, rowvar)
    if c.ndim == 0:
        return divide(c, c)
    deviations = sqrt(diagonal(c))
    return minimum(maximum(divide(divide(c, expand_dims(deviations, 1)), deviations), -1), 1)

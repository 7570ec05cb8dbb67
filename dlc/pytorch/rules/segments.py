"""Reductions of consecutive segments of an axis, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.numpy.apply import convert
from dlc.pytorch.rules.rule_table import RuleTable

table = RuleTable()
_IDENTITIES = {"sum": 0, "mean": 0, "prod": 1, "max": -np.inf, "min": np.inf}


def _segments(x: Any, lengths: Any, offsets: Any, axis: int) -> tuple[Any, Any]:
    """Return which elements along `axis` are in each segment, [..., segments, elements], and the number of them.

    Lengths or offsets have the axes of `x` before `axis`. Elements after the last segment are in none.
    """
    if offsets is None:
        ends = dnp.cumsum(convert(lengths, np.int64), axis)
        starts = dnp.subtract(ends, lengths)
    else:
        starts, ends = (offsets[(*[np.s_[:]] * axis, part)] for part in (np.s_[:-1], np.s_[1:]))
    positions = np.arange(int(x.shape[axis]))
    starts, ends = (dnp.expand_dims(v, -1) for v in (starts, ends))
    is_in = dnp.logical_and(dnp.greater_equal(positions, starts), dnp.less(positions, ends))
    return is_in, dnp.squeeze(dnp.subtract(ends, starts), -1)


def _with_trailing_axes(x: Any, rank: int) -> Any:
    return dnp.reshape(x, (*x.shape, *(1,) * (rank - x.ndim)))


@table("segment_reduce")
def segment_reduce(
    x: Any,
    reduce: str,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Return the reduction of each segment, from `initial`; the mean of an empty segment is `initial`, or NaN."""
    axis %= x.ndim
    is_in, count = _segments(x, lengths, offsets, axis)
    identity = _IDENTITIES[reduce]
    members = dnp.where(_with_trailing_axes(is_in, x.ndim + 1), dnp.expand_dims(x, axis), convert(identity, x.dtype))
    first = identity if initial is None else initial
    if reduce in ("max", "min"):
        extremum, combine = (dnp.max, dnp.maximum) if reduce == "max" else (dnp.min, dnp.minimum)
        return combine(extremum(members, axis + 1), convert(first, x.dtype))
    if reduce == "prod":
        return dnp.multiply(dnp.prod(members, axis + 1), convert(first, x.dtype))
    total, count = dnp.add(dnp.sum(members, axis + 1), convert(first, x.dtype)), _with_trailing_axes(count, x.ndim)
    if reduce == "sum":
        return total
    empty = convert(np.nan if initial is None else initial, x.dtype)
    return dnp.where(dnp.equal(count, 0), empty, dnp.divide(total, convert(dnp.maximum(count, 1), x.dtype)))


@table("_segment_reduce_backward")
def segment_reduce_backward(
    g: Any,
    output: Any,
    x: Any,
    reduce: str,
    lengths: Any = None,
    offsets: Any = None,
    axis: int = 0,
    initial: float | None = None,
) -> Any:
    """Gradient with respect to the elements; equal extrema of a segment share theirs."""
    axis %= x.ndim
    is_in, count = _segments(x, lengths, offsets, axis)
    zero, is_member = convert(0, x.dtype), _with_trailing_axes(is_in, x.ndim + 1)
    elements, share = dnp.expand_dims(x, axis), dnp.expand_dims(g, axis + 1)
    if reduce in ("max", "min"):
        is_extremum = dnp.logical_and(is_member, dnp.equal(elements, dnp.expand_dims(output, axis + 1)))
        share = dnp.divide(share, convert(dnp.maximum(dnp.sum(is_extremum, axis + 1, keepdims=True), 1), x.dtype))
        return dnp.sum(dnp.where(is_extremum, share, zero), axis)
    if reduce == "mean":
        share = dnp.divide(
            share, convert(_with_trailing_axes(dnp.expand_dims(dnp.maximum(count, 1), axis + 1), x.ndim + 1), x.dtype)
        )
    if reduce != "prod":
        return dnp.sum(dnp.where(is_member, share, zero), axis)
    # The product of the other elements: with one zero only the gradient of that element is not 0.
    is_zero = dnp.logical_and(is_member, dnp.equal(elements, 0))
    factors = dnp.where(dnp.logical_and(is_member, dnp.logical_not(is_zero)), elements, convert(1, x.dtype))
    product = dnp.multiply(dnp.prod(factors, axis + 1, keepdims=True), convert(1 if initial is None else initial, x.dtype))
    zeros_among_others = dnp.subtract(dnp.sum(is_zero, axis + 1, keepdims=True), convert(is_zero, np.int64))
    others = dnp.where(dnp.equal(zeros_among_others, 0), dnp.divide(product, factors), zero)
    return dnp.sum(dnp.where(is_member, dnp.multiply(share, others), zero), axis)

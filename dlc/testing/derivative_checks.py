"""Checks of the derivative of an op: forward mode against finite differences, reverse mode against forward mode."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.testing.derivative_points import Point
from dlc.testing.sample import F32, F64, Sample, require

# The step of finite differences in f64 with about equal truncation and rounding errors.
_DIFFERENCE_STEP = 1e-6


def has_float_operands(sample: Sample) -> bool:
    """Return whether a sample has float operands, all of them f32 or f64 and not empty: it can be differentiated in f64."""
    floats = [x for x in sample.operands if is_float(element_type(x.dtype))]
    return bool(floats) and all(x.dtype in (F32, F64) and x.size for x in floats)


def point_of(sample: Sample, low: float = 0.2, high: float = 0.8) -> Point:
    """Return the op at random f64 operands between `low` and `high`."""
    random = np.random.default_rng(len(sample.name))
    properties = {name: value for name, value in sample.properties.items() if name != "result"}
    sample = Sample(sample.op, sample.operands, sample.expected, properties, label=sample.label)
    operands = (random.uniform(low, high, x.shape) if is_float(element_type(x.dtype)) else x for x in sample.operands)
    return Point(sample, tuple(operands))


def check_forward_mode(point: Point) -> None:
    """Check the tangents against central finite differences."""
    if not point.value():
        return
    random = np.random.default_rng(1)
    directions = [random.standard_normal(x.shape) for x in point.floats]
    high, low = (
        point.at([x + step * d for x, d in zip(point.floats, directions, strict=True)]).value()
        for step in (_DIFFERENCE_STEP, -_DIFFERENCE_STEP)
    )
    differences = [(a - b) / (2 * _DIFFERENCE_STEP) for a, b in zip(high, low, strict=True)]
    for got, expected in zip(point.tangents(directions), differences, strict=True):
        tolerance = 2e-7 * max(1.0, float(np.max(np.abs(expected), initial=0)))
        np.testing.assert_allclose(got, expected, atol=tolerance, rtol=0)


def check_reverse_mode(point: Point) -> None:
    """Check that reverse mode is the transpose of forward mode: ⟨w, J·d⟩ = ⟨Jᵀ·w, d⟩."""
    if not point.value():
        return
    random = np.random.default_rng(2)
    directions = [random.standard_normal(x.shape) for x in point.floats]
    weights = [random.standard_normal(y.shape) for y in point.value()]
    forward, reverse = _inner(weights, point.tangents(directions)), _inner(point.cotangents(weights), directions)
    is_equal = isclose(forward, reverse, rel_tol=1e-9, abs_tol=1e-9)
    require(is_equal, f"⟨w, J·d⟩ = {forward}, ⟨Jᵀ·w, d⟩ = {reverse}")


def _inner(xs: Sequence[NDArray[Any]], ys: Sequence[NDArray[Any]]) -> float:
    return sum(float(np.vdot(x, y)) for x, y in zip(xs, ys, strict=True))

"""Gradients of margin losses."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.numpy.apply import convert
from dlc.pytorch.rules.rule_table import RuleTable

table = RuleTable()
_NO_REDUCTION, _MEAN = 0, 1


def _rows(x: Any) -> Any:
    """Return [N, C] of [N, C], [C] or a number."""
    return dnp.reshape(x, (-1, x.shape[-1] if x.ndim else 1))


def _row_gradients(g: Any, x: Any, reduction: int) -> Any:
    """Return the gradient of the mean over the classes of each row of `x` [N, C], as [N, 1]."""
    rows, classes = x.shape
    share = dnp.divide(g, classes * rows if reduction == _MEAN else classes)
    return dnp.broadcast_to(dnp.reshape(share, (-1, 1)), (rows, 1))


@table("multi_margin_loss_backward")
def multi_margin_loss_backward(
    g: Any, x: Any, target: Any, p: float, margin: float, weight: Any = None, reduction: int = _MEAN
) -> Any:
    """Gradient of the sum over j ≠ t of max(0, margin - x[t] + x[j])ᵖ, for p of 1 or 2, times the weight of class t."""
    rows, target = _rows(x), dnp.reshape(target, (-1, 1))
    violation = dnp.add(dnp.subtract(rows, dnp.take_along_axis(rows, target, axis=1)), margin)
    is_target = dnp.equal(np.arange(rows.shape[1]), target)
    is_violated = dnp.logical_and(dnp.greater(violation, 0), dnp.logical_not(is_target))
    slope = dnp.multiply(violation, 2) if p == 2 else dnp.ones_like(violation)
    share = _row_gradients(g, rows, reduction)
    if weight is not None:
        share = dnp.multiply(share, dnp.take(weight, target))
    others = dnp.where(is_violated, dnp.multiply(slope, share), convert(0, x.dtype))
    own = dnp.where(is_target, dnp.sum(others, 1, keepdims=True), convert(0, x.dtype))
    return dnp.reshape(dnp.subtract(others, own), x.shape)


@table("multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(g: Any, x: Any, target: Any, reduction: int, is_target: Any) -> Any:
    """Gradient of the sum over targets t and other classes j of max(0, 1 - x[t] + x[j]); the first -1 ends the targets."""
    rows, targets = _rows(x), _rows(target)
    is_used = dnp.equal(dnp.cumsum(convert(dnp.less(targets, 0), np.int64), 1), 0)
    targets = dnp.where(is_used, targets, 0)
    # The axes of violations are rows, targets and classes.
    violation = dnp.add(
        dnp.subtract(dnp.expand_dims(rows, 1), dnp.expand_dims(dnp.take_along_axis(rows, targets, axis=1), 2)), 1
    )
    is_other = dnp.expand_dims(dnp.equal(dnp.reshape(is_target, rows.shape), 0), 1)
    is_counted = dnp.logical_and(dnp.greater(violation, 0), dnp.logical_and(is_other, dnp.expand_dims(is_used, 2)))
    counted = convert(is_counted, x.dtype)
    row_indices = dnp.broadcast_to(np.arange(int(rows.shape[0]))[:, np.newaxis], rows.shape)
    gradient = dnp.at(dnp.sum(counted, 1))[row_indices, targets].add(dnp.negative(dnp.sum(counted, 2)))
    return dnp.reshape(dnp.multiply(gradient, _row_gradients(g, rows, reduction)), x.shape)

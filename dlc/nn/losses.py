"""Losses: functions of predictions and targets. Take the mean of those that return more than one value."""

from __future__ import annotations

from typing import Any

from dlc.errors import DTypeError, ShapeError
from dlc.nn.activations import log_softmax, softplus
from dlc.numpy import abs, arange, equal, expand_dims, mean, minimum, multiply, negative, square, subtract, sum, where
from dlc.numpy.apply import ArrayLike, as_index, operand, promote_to_float, refuse

__all__ = ["huber", "mse", "sigmoid_cross_entropy", "softmax_cross_entropy"]


def softmax_cross_entropy(logits: ArrayLike, labels: ArrayLike, /) -> Any:
    """Return -log softmax(logits)[label] per row of logits [..., C] for labels [...]; 0 for a label out of range."""
    (x,), labels = promote_to_float(logits), operand(labels)
    if labels.dtype.kind not in "iu":
        refuse(DTypeError(f"dlc.nn.softmax_cross_entropy: labels of dtype {labels.dtype}; expected integers"))
    if labels.shape != x.shape[:-1]:
        refuse(ShapeError(f"dlc.nn.softmax_cross_entropy: labels of shape {labels.shape}; expected {x.shape[:-1]}"))
    is_label = equal(expand_dims(as_index(labels), -1), arange(x.shape[-1]))
    return negative(sum(where(is_label, log_softmax(x), 0), -1))


def sigmoid_cross_entropy(logits: ArrayLike, labels: ArrayLike, /) -> Any:
    """Return -label · log σ(x) - (1 - label) · log(1 - σ(x)) for each element, without overflow."""
    x, y = promote_to_float(logits, labels)
    return subtract(softplus(x), multiply(x, y))


def mse(predictions: ArrayLike, targets: ArrayLike, /) -> Any:
    """Return the mean of (prediction - target)² over all elements."""
    return mean(square(subtract(*promote_to_float(predictions, targets))))


def huber(predictions: ArrayLike, targets: ArrayLike, /, delta: float = 1.0) -> Any:
    """Return for each element ½ d² if the distance d is at most `delta`, else delta · (d - ½ delta)."""
    distance = abs(subtract(*promote_to_float(predictions, targets)))
    clipped_distance = minimum(distance, delta)
    return multiply(clipped_distance, subtract(distance, multiply(clipped_distance, 0.5)))

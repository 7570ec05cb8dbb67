"""Losses: how far predictions are from what they should be. Take the mean of those that are not one number."""

from __future__ import annotations

from typing import Any

from dlc.errors import DTypeError, ShapeError
from dlc.nn.activations import log_softmax, softplus
from dlc.numpy import abs, arange, equal, expand_dims, mean, minimum, multiply, negative, square, subtract, sum, where
from dlc.numpy.apply import ArrayLike, operand, promote_to_float, refuse

__all__ = ["huber", "mse", "sigmoid_cross_entropy", "softmax_cross_entropy"]


def softmax_cross_entropy(logits: ArrayLike, labels: ArrayLike, /) -> Any:
    """-log softmax(logits)[label] of each row of logits [..., C], for integers [...]; 0 for a label outside of the row."""
    (x,), labels = promote_to_float(logits), operand(labels)
    if labels.dtype.kind not in "iu":
        refuse(DTypeError(f"dlc.nn.softmax_cross_entropy: labels of {labels.dtype}, expected integers"))
    if labels.shape != x.shape[:-1]:
        refuse(ShapeError(f"dlc.nn.softmax_cross_entropy: labels {labels.shape} of logits {x.shape}; expected {x.shape[:-1]}"))
    chosen = equal(expand_dims(labels, -1), arange(x.shape[-1], dtype=labels.dtype))
    return negative(sum(where(chosen, log_softmax(x), 0), -1))


def sigmoid_cross_entropy(logits: ArrayLike, labels: ArrayLike, /) -> Any:
    """-label · log σ(x) - (1 - label) · log(1 - σ(x)) of each element, computed without overflow."""
    x, y = promote_to_float(logits, labels)
    return subtract(softplus(x), multiply(x, y))


def mse(predictions: ArrayLike, targets: ArrayLike, /) -> Any:
    """The mean of (prediction - target)² over all elements."""
    return mean(square(subtract(*promote_to_float(predictions, targets))))


def huber(predictions: ArrayLike, targets: ArrayLike, /, delta: float = 1.0) -> Any:
    """Of each element ½ d² for a distance d up to `delta`, beyond it delta · (d - ½ delta)."""
    distance = abs(subtract(*promote_to_float(predictions, targets)))
    near = minimum(distance, delta)
    return multiply(near, subtract(distance, multiply(near, 0.5)))

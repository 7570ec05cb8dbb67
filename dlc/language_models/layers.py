"""Layers of language models on rows of tokens, [T, features]: products with weights of checkpoints, and rotations."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import nn
from dlc.dialects import dl
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.frontend.trace import current_trace
from dlc.language_models.quantized_matrix import QuantizedMatrix, Weight
from dlc.numpy.apply import apply, operand

__all__ = ["apply_rotary", "embed", "linear", "min_activation_bits", "rms_norm"]

_min_activation_bits: ContextVar[int] = ContextVar("min_activation_bits", default=16)


@contextmanager
def min_activation_bits(bits: int) -> Generator[None]:
    """Let products with quantized weights that are traced in this context quantize rows to at least 8 or 16 bits."""
    token = _min_activation_bits.set(bits)
    try:
        yield
    finally:
        _min_activation_bits.reset(token)


def linear(x: Any, weight: Weight, bias: Any = None) -> Any:
    """Return x · weightᵀ + bias for rows [T, K] and a weight [N, K].

    A quantized weight stays in memory as integers. Each row of `x` is quantized per group to 16 bits, or to 8 bits if
    `min_activation_bits` allows that and the target has byte dot products. Minima are multiplied by sums of the rounded rows.
    """
    if isinstance(weight, QuantizedMatrix):
        x = x if weight.input_order is None else dnp.take(x, weight.input_order, -1)
        columns = apply(dl.TransposeOp, _dequantize(weight, _traced), permutation=(1, 0))
        y = apply(dl.MatmulOp, operand(x), columns, min_lhs_bits=_min_activation_bits.get())
    else:
        y = dnp.matmul(x, dnp.swapaxes(dnp.asarray(weight).astype(np.float32), 0, 1))
    return y if bias is None else y + bias


def embed(tokens: Any, weight: Weight) -> Any:
    """Return the rows of a weight [V, D] at the token ids [T], as f32 [T, D]."""

    def rows(array: Any) -> Any:
        return apply(dl.GatherOp, operand(array), operand(tokens), axis=0)

    if isinstance(weight, QuantizedMatrix) and weight.input_order is not None:
        weight = weight.dequantize()
    return _dequantize(weight, rows)


def _dequantize(weight: Weight, select: Callable[[Any], Any]) -> Any:
    """Return the rows that `select` returns of a weight, as f32."""
    if not isinstance(weight, QuantizedMatrix):
        floats = operand(select(weight))
        return apply(dl.CastOp, floats, to=ELEMENT_TYPES["float32"]) if weight.dtype != np.float32 else floats
    integers = select(weight.integers)
    if weight.table is not None:
        integers = apply(dl.GatherOp, _literal(weight.table), integers, axis=0)
    zero_type = (weight.integers if weight.table is None else weight.table).dtype
    zero = np.zeros((), zero_type) if weight.zero is None else select(weight.zero)
    values = apply(dl.DequantizeOp, integers, _dequantize(weight.scale, select), operand(zero), axis=1)
    if weight.minimum is None:
        return values
    return values + dnp.repeat(_dequantize(weight.minimum, select), weight.shape[1] // weight.minimum.shape[1], axis=1)


def _traced(array: Any) -> Any:
    """Return a constant of the trace, so that ops on it are compiled with the program and not evaluated while tracing."""
    trace = current_trace()
    return operand(array) if trace is None else trace.constant(array)


def _literal(array: Any) -> Any:
    """Return a small constant whose values the compiler sees."""
    trace = current_trace()
    return operand(array) if trace is None else trace.literal(array)


def rms_norm(x: Any, weight: Any, epsilon: float) -> Any:
    """Return x / √(mean of x² + epsilon) · weight, over the last axis."""
    return nn.rms_norm(x, np.asarray(weight, np.float32), epsilon=epsilon)


def apply_rotary(x: Any, angles: Any, magnitude: float = 1.0) -> Any:
    """Rotate n pairs of features of x [T, H, D]: feature i with i + n, by the angles [T, n] (Su et al., RoFormer).

    Rotated features are multiplied by `magnitude`.
    """
    half = angles.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = dnp.cos(angles)[:, None, :], dnp.sin(angles)[:, None, :]
    if magnitude != 1:
        cos, sin = cos * np.float32(magnitude), sin * np.float32(magnitude)
    rotated = [first * cos - second * sin, second * cos + first * sin]
    return dnp.concatenate([*rotated, rest] if rest.shape[-1] else rotated, -1)

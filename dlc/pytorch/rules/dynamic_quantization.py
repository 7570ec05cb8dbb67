"""Quantization parameters that are computed at run time, and quantization per token and per group of a channel.

Operators of `quantized_decomposed` in exports of PT2E and ExecuTorch. Their integers are converted to floats and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.errors import UnsupportedError
from dlc.numpy.apply import convert, refuse
from dlc.pytorch.rules.rule_table import Dtype, RuleTable, widened

table = RuleTable()
_INT8_MIN, _INT8_MAX = -128, 127
# PyTorch's minimum scale per token with symmetric ranges: that of elements up to 1e-5.
_MIN_TOKEN_SCALE = 1e-5 / _INT8_MAX
_FLOAT32_EPSILON = float(np.finfo(np.float32).eps)


@table("quantized_decomposed::choose_qparams.tensor")
def choose_affine(x: Any, quant_min: int, quant_max: int, eps: float, dtype: Dtype) -> Sequence[Any]:
    """Return scale and zero point, of shape (1,): [min, max] with 0 becomes [quant_min, quant_max]."""
    low, high = (dnp.reshape(extremum, (1,)) for extremum in (dnp.min(x, initial=0), dnp.max(x, initial=0)))
    scale = dnp.maximum(dnp.divide(dnp.subtract(high, low), float(quant_max - quant_min)), convert(eps, x.dtype))
    zero_point = dnp.subtract(float(quant_min), dnp.rint(dnp.divide(low, scale)))
    return scale, convert(dnp.clip(zero_point, quant_min, quant_max), np.int64)


@table("quantized_decomposed::choose_qparams_symmetric.tensor")
def choose_symmetric(x: Any, quant_min: int, quant_max: int, eps: float, dtype: Dtype) -> Sequence[Any]:
    """Return scale and zero point, of shape (1,): 0, or 128 for uint8."""
    magnitude = dnp.reshape(dnp.max(dnp.abs(x), initial=0), (1,))
    scale = dnp.maximum(dnp.divide(magnitude, (quant_max - quant_min) / 2), convert(eps, x.dtype))
    return scale, dnp.full((1,), 128 if dtype == np.uint8 else 0, np.int64)


@table("quantized_decomposed::choose_qparams_per_token")
def choose_per_token(x: Any, dtype: Dtype) -> Sequence[Any]:
    """Return symmetric scales of int8 for the vectors along the last axis, and zeros."""
    if dtype != np.int8:
        refuse(UnsupportedError(f"choose_qparams_per_token: dtype {dtype}; expected int8"))
    magnitude = dnp.max(dnp.abs(x), axis=-1, keepdims=True)
    scales = dnp.maximum(dnp.divide(convert(magnitude, np.float32), float(_INT8_MAX)), _MIN_TOKEN_SCALE)
    return scales, dnp.zeros_like(scales)


@table(
    "quantized_decomposed::choose_qparams_per_token_asymmetric quantized_decomposed::_choose_qparams_per_token_asymmetric_impl"
)
def choose_per_token_affine(x: Any, dtype: Dtype) -> Sequence[Any]:
    """Return scales and zero points of int8 for the vectors along the last axis, as XNNPACK chooses them."""
    low, high = (extremum(x, axis=-1, keepdims=True, initial=0) for extremum in (dnp.min, dnp.max))
    scales = dnp.maximum(dnp.divide(dnp.subtract(high, low), float(_INT8_MAX - _INT8_MIN)), _FLOAT32_EPSILON)
    scaled_low, scaled_high = dnp.divide(low, scales), dnp.divide(high, scales)
    # The zero point makes exact the end of the range with the smaller rounding error.
    is_low_exact = dnp.greater(dnp.add(dnp.add(scaled_low, float(_INT8_MIN)), dnp.add(scaled_high, float(_INT8_MAX))), 0)
    zero_points = dnp.where(
        is_low_exact, dnp.subtract(float(_INT8_MIN), scaled_low), dnp.subtract(float(_INT8_MAX), scaled_high)
    )
    return scales, convert(dnp.rint(dnp.clip(zero_points, _INT8_MIN, _INT8_MAX)), np.int64)


@table("quantized_decomposed::quantize_per_token")
def quantize_per_token(x: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Dtype) -> Any:
    """Return clip(round(x · (1 / scale) + zero_point)), with a scale for each vector along the last axis."""
    levels = dnp.add(dnp.multiply(widened(x), dnp.divide(1, scales)), convert(zero_points, scales.dtype))
    return convert(dnp.clip(dnp.rint(levels), quant_min, quant_max), dtype)


@table("quantized_decomposed::dequantize_per_token")
def dequantize_per_token(
    x: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Dtype, output_dtype: Dtype
) -> Any:
    difference = dnp.subtract(convert(x, scales.dtype), convert(zero_points, scales.dtype))
    return convert(dnp.multiply(difference, scales), output_dtype)


@table("quantized_decomposed::quantize_per_channel_group")
def quantize_per_group(
    x: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Dtype, group_size: int
) -> Any:
    """Quantize a matrix with a scale for each group of elements of a row."""
    groups = _groups(x, scales, group_size)
    scale_column, zero_column = (dnp.reshape(v, (-1, 1)) for v in (scales, zero_points))
    return dnp.reshape(quantize_per_token(groups, scale_column, zero_column, quant_min, quant_max, dtype), x.shape)


@table("quantized_decomposed::dequantize_per_channel_group")
def dequantize_per_group(
    x: Any,
    scales: Any,
    zero_points: Any,
    quant_min: int,
    quant_max: int,
    dtype: Dtype,
    group_size: int,
    output_dtype: Dtype,
) -> Any:
    zero_points = dnp.zeros_like(scales) if zero_points is None else zero_points
    groups = _groups(x, scales, group_size)
    scale_column, zero_column = (dnp.reshape(v, (-1, 1)) for v in (scales, zero_points))
    values = dequantize_per_token(groups, scale_column, zero_column, quant_min, quant_max, dtype, output_dtype)
    return dnp.reshape(values, x.shape)


def _groups(x: Any, scales: Any, group_size: int) -> Any:
    """Return the groups of a matrix as rows; a row with a single scale is one group."""
    return dnp.reshape(x, (-1, min(group_size, x.shape[-1]) if scales.shape[-1] == 1 else group_size))

"""Quantization of exported programs: the operators of `quantized_decomposed`.

Integers that fill the range of their dtype use `dl.quantize` and `dl.dequantize`, from which products of integers are formed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.numpy.apply import apply, convert
from dlc.pytorch.rules.rule_table import Dtype, RuleTable, is_tensor, widened

table = RuleTable()
# The widest integers of dl.quantize.
_MAX_QUANTIZED_BYTES = 2


def _names(name: str) -> str:
    return " ".join(f"quantized_decomposed::{name}{overload}" for overload in ("", ".tensor", ".tensor2"))


@table(_names("quantize_per_tensor"))
def quantize_per_tensor(x: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Dtype) -> Any:
    return _quantize(x, _rank_0(scale), _rank_0(zero_point), 0, quant_min, quant_max, dtype)


@table("quantized_decomposed::quantize_per_channel")
def quantize_per_channel(x: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: Dtype) -> Any:
    return _quantize(x, scales, zero_points, axis, quant_min, quant_max, dtype)


@table(_names("dequantize_per_tensor"))
def dequantize_per_tensor(
    x: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Dtype, out_dtype: Dtype | None = None
) -> Any:
    return _dequantize(x, _rank_0(scale), _rank_0(zero_point), 0, out_dtype)


@table("quantized_decomposed::dequantize_per_channel")
def dequantize_per_channel(
    x: Any,
    scales: Any,
    zero_points: Any,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Dtype,
    out_dtype: Dtype | None = None,
) -> Any:
    zero_points = np.zeros(scales.shape, x.dtype) if zero_points is None else zero_points
    return _dequantize(x, scales, zero_points, axis, out_dtype)


def _rank_0(parameter: Any) -> Any:
    return dnp.reshape(parameter, ()) if is_tensor(parameter) else np.asarray(parameter)


def _quantize(x: Any, scale: Any, zero_point: Any, axis: int, quant_min: Any, quant_max: Any, dtype: Dtype) -> Any:
    """Return clip(round(x / scale) + zero_point, quant_min, quant_max)."""
    x, scale = widened(x), convert(scale, np.float32)
    if dtype.itemsize <= _MAX_QUANTIZED_BYTES:
        levels = apply(dl.QuantizeOp, x, scale, convert(zero_point, dtype), axis=axis)
    else:
        shape = (-1, *(1,) * (x.ndim - 1 - axis % x.ndim)) if scale.ndim else ()
        scale, zero_point = (dnp.reshape(v, shape) for v in (scale, convert(zero_point, np.float32)))
        levels = dnp.add(dnp.rint(dnp.divide(x, scale)), zero_point)
    limits = np.iinfo(dtype)
    if not is_tensor(quant_min) and (quant_min, quant_max) == (limits.min, limits.max):
        return convert(levels, dtype)
    return convert(dnp.clip(levels, *(convert(limit, levels.dtype) for limit in (quant_min, quant_max))), dtype)


def _dequantize(x: Any, scale: Any, zero_point: Any, axis: int, out_dtype: Dtype | None) -> Any:
    """Return (x - zero_point) · scale."""
    y = apply(dl.DequantizeOp, x, convert(scale, np.float32), convert(zero_point, x.dtype), axis=axis)
    return convert(y, out_dtype or np.float32)

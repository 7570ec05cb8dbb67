"""Fake quantization, which quantization-aware training inserts."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.numpy.apply import convert
from dlc.pytorch.rules.rule_table import RuleTable

table = RuleTable()


@table("fake_quantize_per_tensor_affine_cachemask")
def per_tensor(x: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    """Return (q - zero_point) · scale for q = clip(round(x / scale) + zero_point), and a mask.

    The mask is true for elements that were not clipped.
    """
    x_float32 = convert(x, np.float32)
    zero = convert(zero_point, np.float32)
    code = dnp.add(dnp.rint(dnp.multiply(x_float32, dnp.divide(np.float32(1), convert(scale, np.float32)))), zero)
    is_in_range = dnp.logical_and(dnp.greater_equal(code, quant_min), dnp.less_equal(code, quant_max))
    clipped = dnp.subtract(dnp.clip(code, quant_min, quant_max), zero)
    return convert(dnp.multiply(clipped, convert(scale, np.float32)), x.dtype), is_in_range


@table("fake_quantize_per_channel_affine_cachemask")
def per_channel(x: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int) -> Any:
    shape = (-1, *(1,) * (x.ndim - 1 - axis % x.ndim))
    return per_tensor(x, dnp.reshape(scale, shape), dnp.reshape(zero_point, shape), quant_min, quant_max)


@table("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def per_tensor_if_enabled(x: Any, scale: Any, zero_point: Any, enabled: Any, quant_min: int, quant_max: int) -> Any:
    """Fake-quantize if `enabled`; otherwise return x and a mask of ones."""
    quantized, is_in_range = per_tensor(x, scale, zero_point, quant_min, quant_max)
    is_enabled = dnp.not_equal(enabled, 0)
    return dnp.where(is_enabled, quantized, x), dnp.logical_or(is_in_range, dnp.logical_not(is_enabled))

"""Calibration methods: functions (histogram, settings) → (low, high), the range of an activation."""

from __future__ import annotations

from dlc.quantization.histogram import Histogram
from dlc.quantization.settings import QuantizationSettings

__all__ = [
    "Histogram",
    "QuantizationSettings",
]

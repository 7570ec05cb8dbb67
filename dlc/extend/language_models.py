"""Block formats of weights: functions from the bytes of blocks to matrices of small integers with scales and zero points."""

from __future__ import annotations

from dlc.language_models.checkpoints.block_formats import GgufType
from dlc.language_models.quantized_matrix import QuantizedMatrix

__all__ = [
    "GgufType",
    "QuantizedMatrix",
]

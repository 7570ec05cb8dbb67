"""Block formats of weights: decode blocks to quantized matrices, which have integers, scales and zero points."""

from __future__ import annotations

from dlc.language_models.checkpoints.block_formats import GgufType
from dlc.language_models.quantized_matrix import QuantizedMatrix

__all__ = [
    "GgufType",
    "QuantizedMatrix",
]

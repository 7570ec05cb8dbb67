"""Converters of ONNX nodes: functions in a `ConverterTable`, by operator."""

from __future__ import annotations

from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.problems import NodeProblem

__all__ = [
    "ConverterTable",
    "Emitter",
    "ImportedValue",
    "NodeProblem",
    "OnnxNode",
]

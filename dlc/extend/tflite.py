"""Converters of TFLite operators: functions in a `TfliteConverterTable`, by operator; a custom operator is `CUSTOM name`."""

from __future__ import annotations

from dlc.frontend.emitter import ImportedValue
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode

__all__ = [
    "ImportedValue",
    "NodeProblem",
    "TfliteConverterTable",
    "TfliteNode",
]

"""Converters of StableHLO ops and custom calls: functions of a `StableHloNode`, by name."""

from __future__ import annotations

from dlc.stablehlo.node import StableHloNode, StableHloValue

__all__ = [
    "StableHloNode",
    "StableHloValue",
]

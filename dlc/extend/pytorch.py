"""Rules of PyTorch operators: functions of arrays in a `RuleTable`, by name."""

from __future__ import annotations

from dlc.pytorch.rules.rule_table import RuleTable, promoted, promoted_floats

__all__ = [
    "RuleTable",
    "promoted",
    "promoted_floats",
]

"""Validate the numeric settings of text generation; booleans are not numbers."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from dlc.errors import ArgumentError


def is_integer(value: object) -> bool:
    """Return whether a value is an integer of Python or NumPy."""
    return not isinstance(value, bool) and isinstance(value, Integral)


def require_integer(name: str, value: Any, low: int, high: int | None = None) -> None:
    """Raise ArgumentError unless a setting is an integer of at least `low` and at most `high`."""
    if not is_integer(value) or value < low or (high is not None and value > high):
        limits = f">= {low}" if high is None else f"from {low} to {high}"
        raise ArgumentError(f"{name} = {value!r:.60}; expected an integer {limits}")


def require_number(name: str, value: Any, low: float, high: float) -> None:
    """Raise ArgumentError unless a setting is a number of at least `low` and at most `high`."""
    if not _is_number(value) or not low <= value <= high:
        raise ArgumentError(f"{name} = {value!r:.60}; expected a number from {low} to {high}")


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)

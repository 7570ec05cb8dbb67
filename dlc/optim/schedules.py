"""Learning rate schedules: functions of the step count."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dlc.numpy import add, clip, cos, divide, less, multiply, subtract, where
from dlc.numpy.apply import convert

__all__ = ["constant_schedule", "cosine_schedule", "linear_schedule"]

Schedule = Callable[[Any], Any]


def constant_schedule(value: float) -> Schedule:
    """Return a schedule that is `value` at every step."""

    def rate(count: Any) -> Any:
        return np.float32(value)

    return rate


def linear_schedule(start: float, end: float, steps: int) -> Schedule:
    """Return a schedule that is linear from start to end over `steps` steps, then constant."""

    def rate(count: Any) -> Any:
        return add(multiply(_progress(count, steps), end - start), start)

    return rate


def cosine_schedule(peak: float, steps: int, *, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Return a schedule that is linear from 0 to peak over `warmup` steps, then follows a cosine down to end at `steps`."""

    def rate(count: Any) -> Any:
        wave = multiply(add(cos(multiply(_progress(subtract(count, warmup), steps - warmup), math.pi)), 1.0), 0.5)
        decay = add(multiply(wave, peak - end), end)
        return where(less(count, warmup), multiply(_progress(count, warmup), peak), decay) if warmup else decay

    return rate


def _progress(count: Any, steps: int) -> Any:
    """Return the fraction of the steps that is completed, from 0 to 1."""
    return clip(divide(convert(count, np.float32), float(steps)), 0.0, 1.0)

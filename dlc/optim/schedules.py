"""Learning rates as functions of the number of steps before."""

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
    """`value` at every step."""

    def rate(count: Any) -> Any:
        return np.float32(value)

    return rate


def linear_schedule(start: float, end: float, steps: int) -> Schedule:
    """From start to end in so many steps, then end."""

    def rate(count: Any) -> Any:
        return add(multiply(_part(count, steps), end - start), start)

    return rate


def cosine_schedule(peak: float, steps: int, *, warmup: int = 0, end: float = 0.0) -> Schedule:
    """From 0 to peak in the `warmup` steps, then down to end along half a wave of the cosine, until `steps` in all."""

    def rate(count: Any) -> Any:
        wave = multiply(add(cos(multiply(_part(subtract(count, warmup), steps - warmup), math.pi)), 1.0), 0.5)
        falling = add(multiply(wave, peak - end), end)
        return where(less(count, warmup), multiply(_part(count, warmup), peak), falling) if warmup else falling

    return rate


def _part(count: Any, steps: int) -> Any:
    """How much of the steps is done, between 0 and 1."""
    return clip(divide(convert(count, np.float32), float(steps)), 0.0, 1.0)

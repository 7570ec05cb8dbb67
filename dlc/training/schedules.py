"""The learning rates of all steps of a training, by the schedules of `dlc.optim`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from dlc.errors import DlcError
from dlc.optim import cosine_schedule, linear_schedule

Schedule: TypeAlias = Literal["constant", "linear", "cosine"]
SCHEDULES = get_args(Schedule)


def learning_rates(schedule: Schedule, rate: float, steps: int, warmup: int = 0) -> Sequence[float]:
    """The rate of each step: `rate` throughout, from there to 0 in a line, or along a cosine after `warmup` steps up to it.

    Raises DlcError for a warm-up of another schedule than cosine, or of all steps.
    """
    if warmup and schedule != "cosine":
        raise DlcError(f"a warm-up is part of the schedule cosine, not of {schedule}")
    if warmup >= steps:
        raise DlcError(f"a warm-up of {warmup} steps leaves nothing of {steps}")
    if schedule == "constant":
        return [rate] * steps
    by = linear_schedule(rate, 0.0, steps) if schedule == "linear" else cosine_schedule(rate, steps, warmup=warmup)
    return np.asarray(by(np.arange(steps))).tolist()

"""Learning rate schedules of `dlc train`, computed by `dlc.optim`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from dlc.errors import DlcError
from dlc.optim import cosine_schedule, linear_schedule

Schedule: TypeAlias = Literal["constant", "linear", "cosine"]
SCHEDULES = get_args(Schedule)


def learning_rates(schedule: Schedule, rate: float, steps: int, warmup: int = 0) -> Sequence[float]:
    """Return the learning rate of each step: constant, linear decay to 0, or cosine decay with linear warm-up.

    Raises DlcError for a warm-up with another schedule than cosine, or as long as the training.
    """
    if warmup and schedule != "cosine":
        raise DlcError(f"--warmup needs --schedule cosine, got {schedule}")
    if warmup >= steps:
        raise DlcError(f"--warmup: expected fewer than {steps} steps, the length of the training; got {warmup}")
    if schedule == "constant":
        return [rate] * steps
    schedule_function = (
        linear_schedule(rate, 0.0, steps) if schedule == "linear" else cosine_schedule(rate, steps, warmup=warmup)
    )
    return np.asarray(schedule_function(np.arange(steps))).tolist()

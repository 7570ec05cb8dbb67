"""The training loop: run a training step on each batch and pass its results on to the next step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.errors import DlcError
from dlc.runtime.models.model import Model
from dlc.training.data import Examples
from dlc.training.training_step import LEARNING_RATE, LOSS


@dataclass(frozen=True)
class StepResult:
    """The result of a training step: epoch and step, both from 1, the loss, and the updated weights and optimizer state."""

    epoch: int
    step: int
    loss: float
    weights_and_state: Mapping[str, Any]


def steps_per_epoch(examples: Examples, batch_size: int) -> int:
    """Return the number of steps per epoch."""
    return len(examples) // batch_size


def train(
    step: Model,
    examples: Examples,
    batch_size: int,
    epochs: int,
    weights_and_state: Mapping[str, Any],
    rates: Sequence[float],
    seed: int = 0,
) -> Iterator[StepResult]:
    """Run the steps of some epochs from the given weights and state; missing ones start from the model's defaults.

    `rates` is the learning rate of each step.

    Raises DlcError for a loss that is not finite.
    """
    generator = np.random.default_rng(seed)
    batch_inputs = [info for info in step.inputs if info.name not in step.defaults]
    remaining_rates = iter(rates)
    for epoch in range(1, epochs + 1):
        for step_index, batch in enumerate(examples.batches(batch_inputs, batch_size, generator), 1):
            results = step({**weights_and_state, **batch, LEARNING_RATE: np.float32(next(remaining_rates))})
            loss = float(np.asarray(results[LOSS]))
            if not math.isfinite(loss):
                raise DlcError(
                    f"the loss is {loss} in step {step_index} of epoch {epoch}; try a smaller --learning-rate; "
                    "`dlc run MODEL --first-nan` finds the op that produces a NaN"
                )
            weights_and_state = {name: array for name, array in results.items() if name != LOSS}
            yield StepResult(epoch, step_index, loss, weights_and_state)

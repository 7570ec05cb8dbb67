"""Training: a step's model run on batch after batch, what it returns handed on to the next one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.errors import DlcError
from dlc.runtime.models.model import Model
from dlc.training.data import Examples
from dlc.training.steps import LEARNING_RATE, LOSS


@dataclass(frozen=True)
class Done:
    """A step that was taken: which one of which epoch, both from 1, its loss, and the weights and state after it."""

    epoch: int
    step: int
    loss: float
    carried: Mapping[str, Any]


def steps_in(examples: Examples, batch_size: int) -> int:
    """How many steps an epoch has."""
    return len(examples) // batch_size


def train(
    step: Model,
    examples: Examples,
    batch_size: int,
    epochs: int,
    carried: Mapping[str, Any],
    rates: Sequence[float],
    seed: int = 0,
) -> Iterator[Done]:
    """Takes the steps of some epochs, beginning with these weights and this state; what is not given is the model's default.

    `rates` has the learning rate of each step.

    Raises DlcError for a loss that is no number.
    """
    generator = np.random.default_rng(seed)
    given = [info for info in step.inputs if info.name not in step.defaults]
    left = iter(rates)
    for epoch in range(1, epochs + 1):
        for number, batch in enumerate(examples.batches(given, batch_size, generator), 1):
            results = step({**carried, **batch, LEARNING_RATE: np.float32(next(left))})
            loss = float(np.asarray(results[LOSS]))
            if not math.isfinite(loss):
                raise DlcError(
                    f"the loss is {loss} in step {number} of epoch {epoch}; a smaller --learning-rate may help, and "
                    "`dlc run MODEL --first-nan` says where a NaN comes from"
                )
            carried = {name: array for name, array in results.items() if name != LOSS}
            yield Done(epoch, number, loss, carried)

"""Optimisers: what gradients change parameters by, as two functions each.

    optimizer = dlc.optim.adamw(1e-3, weight_decay=0.01)
    state = optimizer.init(params)

    @dlc.jit
    def step(params, state, x, y):
        loss, grads = dlc.value_and_grad(loss_of)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return dlc.optim.apply_updates(params, updates), state, loss

The contract is optax's: `init(params)` makes a state, `update(grads, state, params)` makes updates, to be added to the
parameters, and the next state. Parameters, gradients and states are trees of arrays that match by key; a state is a
NamedTuple, an argument and result of a compiled step like any other. A learning rate is a number or a function of the
number of steps before: `cosine_schedule` and the others.
"""

from dlc.misuse import explain_misuse
from dlc.optim.optimizers import (
    AdamState,
    Optimizer,
    SgdState,
    adam,
    adamw,
    apply_updates,
    chain,
    clip_by_global_norm,
    global_norm,
    sgd,
)
from dlc.optim.schedules import constant_schedule, cosine_schedule, linear_schedule

__all__ = [
    "AdamState", "Optimizer", "SgdState", "adam", "adamw", "apply_updates", "chain", "clip_by_global_norm",
    "constant_schedule", "cosine_schedule", "global_norm", "linear_schedule", "sgd",
]  # fmt: skip

explain_misuse(globals(), keeping=set(__all__) - {"apply_updates", "global_norm"})

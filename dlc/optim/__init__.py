"""Optimizers: gradient transformations as pairs of functions.

    optimizer = dlc.optim.adamw(1e-3, weight_decay=0.01)
    state = optimizer.init(params)

    @dlc.jit
    def step(params, state, x, y):
        loss, grads = dlc.value_and_grad(loss_of)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return dlc.optim.apply_updates(params, updates), state, loss

The interface is optax's: `init(params)` returns a state; `update(grads, state, params)` returns the updates, which are added to
the parameters, and the next state. Parameters, gradients and states are pytrees of the same structure; a state is a NamedTuple,
an argument and a result of the compiled step like any other. A learning rate is a number, or a schedule: a function of the step
count, such as `cosine_schedule`.
"""

from dlc.argument_validation.validate import validate_arguments
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

validate_arguments(globals(), validate_first=set(__all__) - {"apply_updates", "global_norm"})

"""Optimizer runs whose parameters are recorded: `m` is the module, `schedule` creates its schedules.

python -m tests.optim.recorded_runs      records them with optax in float64, where it is installed
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).parent / "parameters.json"
STEPS = 5
RUNS = (
    "m.sgd(0.1)",
    "m.sgd(0.1, momentum=0.9)",
    "m.sgd(0.1, momentum=0.9, nesterov=True)",
    "m.sgd(linear(0.2, 0.0, 4), momentum=0.5)",
    "m.adam(0.01)",
    "m.adam(0.01, b1=0.8, b2=0.9, eps=1e-3)",
    "m.adamw(0.01, weight_decay=0.1)",
    "m.adamw(cosine(0.02, 4, 2, 0.005), weight_decay=0.01)",
    "m.chain(m.clip_by_global_norm(1.0), m.adamw(constant(0.01), weight_decay=0.1))",
    "m.chain(m.clip_by_global_norm(100.0), m.sgd(0.1))",
)


def beginning(dtype: Any) -> tuple[Any, list[Any]]:
    """Return parameters, and gradients for each step, whose dict has another order."""
    draw = np.random.default_rng(0)
    params = {"w": draw.standard_normal((2, 3)).astype(dtype), "layers": [draw.standard_normal(2).astype(dtype)]}
    grads = [
        {"layers": [draw.standard_normal(2).astype(dtype)], "w": draw.standard_normal((2, 3)).astype(dtype)}
        for _ in range(STEPS)
    ]
    return params, grads


def record() -> None:
    import jax
    import optax

    jax.config.update("jax_enable_x64", True)
    names = {
        "m": optax,
        "constant": optax.constant_schedule,
        "linear": optax.linear_schedule,
        "cosine": lambda peak, steps, warmup, end: optax.warmup_cosine_decay_schedule(0.0, peak, warmup, steps, end),
    }
    recorded: dict[str, Any] = {}
    for run in RUNS:
        optimizer = eval(run, names)
        params, grads = beginning(np.float64)
        state = optimizer.init(params)
        for g in grads:
            updates, state = optimizer.update(g, state, params)
            params = optax.apply_updates(params, updates)
        recorded[run] = [params["w"].tolist(), params["layers"][0].tolist()]
    lines = ",\n".join(f"{json.dumps(run)}: {json.dumps(value)}" for run, value in recorded.items())
    RECORDED.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    record()

"""What a training step costs: PYTHONPATH=benchmarks python -m training [MODEL …] [--seconds S] [--with NAMES].

Forward, backward and AdamW in float32, on one processor: milliseconds of a step, medians of steps that take turns, and
seconds of the first step, in which compilers compile. The losses of all must agree, step by step.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

# Before any library counts processors.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

from dlc.measure.latency import interleaved  # noqa: E402
from training.models import MODELS, Draw  # noqa: E402

# What each is called, its module here, and its settings.
RUNTIMES: dict[str, tuple[str, dict[str, Any]]] = {
    "dlc": ("in_dlc", {}),
    "jax": ("in_jax", {}),
    "torch": ("in_torch", {}),
    "torch.compile": ("in_torch", {"compiled": True}),
}


def first_step(name: str, model: str) -> tuple[float, float, Callable[[], float]]:
    """The seconds and the loss of the first step, and what makes the next ones."""
    module, settings = RUNTIMES[name]
    train = import_module(f"training.{module}").training
    x, labels = MODELS[model].batch()
    run = train(MODELS[model], MODELS[model].parameters(Draw()), x, labels, **settings)
    began = time.perf_counter()
    loss = run()
    return time.perf_counter() - began, loss, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[*MODELS])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--with", dest="names", default=",".join(RUNTIMES))
    arguments = parser.parse_args()
    names = arguments.names.split(",")
    table = Table("model", *(f"{name} ms" for name in names), *(f"first {name} s" for name in names))
    for model in arguments.models:
        firsts = {name: first_step(name, model) for name in names}
        second = {name: run() for name, (_, _, run) in firsts.items()}
        for losses in ({name: loss for name, (_, loss, _) in firsts.items()}, second):
            if not np.allclose([*losses.values()], next(iter(losses.values())), rtol=1e-3):
                print(f"{model}: losses differ: {losses}", file=sys.stderr)
        times = interleaved({name: run for name, (_, _, run) in firsts.items()}, arguments.seconds)
        steps = (f"{1e3 * times[name].median:.2f}" for name in names)
        table.add_row(model, *steps, *(f"{firsts[name][0]:.2f}" for name in names))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    main()

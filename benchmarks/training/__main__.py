"""Benchmark training steps: PYTHONPATH=benchmarks python -m training [MODEL …] [--seconds S] [--with NAMES] [--threads N].

A step is forward, backward and AdamW in float32. Prints the median (and fastest) milliseconds of interleaved steps, on as many
processors as threads, and the seconds of the first step, which includes compilation. On one thread, times are processor time,
which excludes other load. The losses of all runtimes must agree at each step. torch.compile is included if there is a C++
compiler.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.table import Table

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("models", nargs="*")
parser.add_argument("--seconds", type=float, default=10.0)
parser.add_argument("--with", dest="names")
parser.add_argument("--threads", type=int, default=1)
arguments = parser.parse_args()
# Before any library counts processors.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])

from dlc.measure.latency import measure_interleaved  # noqa: E402
from training.models import MODELS, Draw  # noqa: E402

# The module of each runtime in this folder, and its settings.
RUNTIMES: dict[str, tuple[str, dict[str, Any]]] = {
    "dlc": ("in_dlc", {}),
    "jax": ("in_jax", {}),
    "torch": ("in_torch", {}),
    "torch.compile": ("in_torch", {"compiled": True}),
}


def first_step(name: str, model: str) -> tuple[float, float, Callable[[], float]]:
    """Return the seconds and the loss of the first step, and a function that runs the next step."""
    module, settings = RUNTIMES[name]
    train = import_module(f"training.{module}").training
    x, labels = MODELS[model].batch()
    run = train(MODELS[model], MODELS[model].parameters(Draw()), x, labels, threads=arguments.threads, **settings)
    start = time.perf_counter()
    loss = run()
    return time.perf_counter() - start, loss, run


def try_first_step(name: str, model: str) -> tuple[float, float, Callable[[], float]] | None:
    """Run the first step; if another runtime fails, print the reason and return None. Errors of dlc are raised."""
    try:
        return first_step(name, model)
    except Exception as error:
        if name == "dlc":
            raise
        message = str(error).strip().splitlines() or [""]
        print(f"{model}: {name} fails: {type(error).__name__}: {message[0][:200]}", file=sys.stderr)
        return None


def agree(losses: Sequence[float], first: float) -> bool:
    """Return whether the losses of several runtimes after the same step agree; `first` is the loss before the first step.

    The tolerance is relative to the first loss too: a small loss is a difference of large logits, whose rounding errors remain;
    and the first steps of AdamW follow the sign of a gradient, however small. For example, the f64 loss of ResNet-18 falls from
    2.70 to 0.022, 0.0086 and 0.0038 in three steps. The relative errors in f32 are 8e-4, 3e-4 and 4e-3 for dlc, 2e-4, 3e-3 and
    2e-4 for PyTorch, and 1e-4, 3e-3 and 6e-4 for JAX: all below 1e-5 of the first loss.
    """
    return max(losses) - min(losses) <= max(1e-3 * min(losses), 2e-5 * first)


def main() -> None:
    has_compiler = bool(shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++"))
    names = arguments.names.split(",") if arguments.names else [n for n in RUNTIMES if n != "torch.compile" or has_compiler]
    table = Table("model", *(f"{name} ms" for name in names), *(f"first {name} s" for name in names))
    for model in arguments.models or MODELS:
        first_steps = {name: step for name in names if (step := try_first_step(name, model)) is not None}
        if not first_steps:
            table.add_row(model, *["failed"] * len(names), *["-"] * len(names))
            continue
        second_losses = {name: run() for name, (_, _, run) in first_steps.items()}
        first_losses = {name: loss for name, (_, loss, _) in first_steps.items()}
        for losses in (first_losses, second_losses):
            if not agree([*losses.values()], min(first_losses.values())):
                print(f"{model}: losses differ: {losses}", file=sys.stderr)
        clock = time.process_time if arguments.threads == 1 else time.perf_counter
        steps_by_runtime = {name: run for name, (_, _, run) in first_steps.items()}
        times = measure_interleaved(steps_by_runtime, arguments.seconds, arguments.threads, clock)
        steps = {name: f"{1e3 * t.median:.2f} ({1e3 * t.fastest:.2f})" for name, t in times.items()}
        table.add_row(
            model,
            *(steps.get(name, "failed") for name in names),
            *(f"{first_steps[n][0]:.2f}" if n in first_steps else "-" for n in names),
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    main()

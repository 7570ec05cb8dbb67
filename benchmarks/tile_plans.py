"""Measure how far the rule-based tile plans are from the best candidate plans, per kernel of whole models, on one thread.

    python benchmarks/tile_plans.py [MODEL …] [--target cpu] [--turns 12]

MODEL is an ONNX file or a name in SET of benchmarks/models.py. It is compiled once per tiling variant; all variants run
interleaved, in the same memory. The best variant in one half of the turns is compared with the rules' plan in the other half,
and vice versa (cross-validation), so that noise is not mistaken for a better plan. Tasks are timed individually, in pieces of
about `PIECE_SECONDS`, and the fastest time of each piece counts, which excludes other load.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from models import load
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import dlc
from dlc.compiler.tuning import with_variant
from dlc.measure.timeline import TimelineRecorder
from dlc.passes.tiling.tasks.variants import VARIANTS, Variant
from dlc.pipelines import stages_of
from dlc.runtime.cpu.artifact import Artifact
from dlc.target import resolve

MODELS = ["resnet50", "densenet121", "mobilenet_v2", "unet", "bert_base_128", "gpt2_decode_kv", "whisper_encoder"]
# A plan within this ratio of the best one counts as equally good.
MAX_SLOWDOWN = 1.05
MAX_LISTED_KERNELS = 15
# Tasks are timed in pieces of equal length, since short tasks escape interruptions more often and would look faster.
PIECE_SECONDS = 50e-6

# For each launch of a run, by its index: the seconds of its tasks in each turn.
Launches: TypeAlias = "Mapping[int, Sequence[NDArray[np.float64]]]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--turns", type=int, default=12, help="runs of each variant, at least 2 (default: 12)")
    arguments = parser.parse_args()
    if arguments.turns < 2:
        parser.error("--turns: expected at least 2, for cross-validation")
    console, near_best, total = Console(), 0.0, 0.0
    for name in arguments.models:
        kernels = measure(name, arguments.target, arguments.turns)
        seconds = sum(k.seconds for k in kernels.values())
        good_seconds = sum(k.seconds for k in kernels.values() if k.slowdown <= MAX_SLOWDOWN)
        near_best, total = near_best + good_seconds, total + seconds
        console.print(
            table(f"{name}: within 5 % of the best for {good_seconds / seconds:.1%} of {1e3 * seconds:.1f} ms", kernels)
        )
    console.print(f"All models: within 5 % of the best for {near_best / total:.1%} of the time.")


@dataclass(frozen=True)
class Kernel:
    """All launches of a kernel in a model.

    `seconds`: their time with the rules' plan; `slowdown`: that time relative to the best variant; `best`: the best variant, or
    None if the two halves of the turns disagree.
    """

    seconds: float
    slowdown: float
    best: Variant | None

    @staticmethod
    def of(variants: Mapping[int, Launches]) -> Kernel:
        """Summarize the times of a kernel's launches for each variant."""
        halves = [
            {
                variant: sum(_uninterrupted_seconds(t[half::2]) for t in launches.values())
                for variant, launches in variants.items()
            }
            for half in (0, 1)
        ]
        best = [min(half, key=lambda variant: half[variant]) for half in halves]
        slowdown = sum(half[0] / half[variant] for half, variant in zip(halves, reversed(best), strict=True)) / 2
        return Kernel(min(half[0] for half in halves), slowdown, VARIANTS[best[0]] if best[0] == best[1] else None)


def _uninterrupted_seconds(turns: Sequence[NDArray[np.float64]]) -> float:
    """Return the seconds of a launch without interruptions: the sum of the fastest time of each piece."""
    tasks = np.asarray(turns)
    ends = np.cumsum(np.median(tasks, axis=0))
    pieces = max(1, round(ends[-1] / PIECE_SECONDS)) if len(ends) else 0
    is_first = np.unique(np.searchsorted(ends, np.arange(pieces) / max(1, pieces) * ends[-1:]))
    return float(np.add.reduceat(tasks, is_first, axis=1).min(axis=0).sum()) if pieces else 0.0


def measure(name: str, target: str, turns: int) -> dict[str, Kernel]:
    """Return the kernels that a model launches, by name."""
    model, inputs = load(name)
    artifacts = [compile_variant(model, inputs, target, variant) for variant in range(len(VARIANTS))]
    return {kernel: Kernel.of(times) for kernel, times in launch_times(artifacts, inputs, turns).items() if times}


def compile_variant(model: Any, inputs: Mapping[str, np.ndarray[Any, Any]], target: str, variant: int) -> Artifact:
    """Compile a model with one of the tiling variants."""
    stages = with_variant(stages_of(resolve(target)), variant)
    artifact = dlc.compile_model(
        model,
        target=target,
        input_shapes={n: a.shape for n, a in inputs.items()},
        num_threads=1,
        cache=False,
        pipeline=",".join(str(p) for stage in stages for p in stage.passes),
    ).artifact
    assert isinstance(artifact, Artifact)
    return artifact


def launch_times(
    artifacts: Sequence[Artifact], inputs: Mapping[str, np.ndarray[Any, Any]], turns: int
) -> Mapping[str, Mapping[int, Launches]]:
    """Return the launch times of each kernel and variant; of variants with equal code only the first is kept."""
    codes: dict[tuple[str, bytes], int] = {}
    is_first = [
        {k.name: codes.setdefault((k.name, k.code), variant) == variant for k in a.kernels}
        for variant, a in enumerate(artifacts)
    ]
    recorders: list[TimelineRecorder] = []
    for a in artifacts:
        recorders.append(TimelineRecorder(a, [np.ascontiguousarray(inputs[i.name]) for i in a.host.inputs], 1, *recorders[:1]))
    times: dict[str, dict[int, dict[int, list[NDArray[np.float64]]]]] = {
        kernel: defaultdict(lambda: defaultdict(list)) for kernel in is_first[0]
    }
    for turn in range(-1, turns):
        order = range(len(recorders))
        for variant in order if turn % 2 == 0 else reversed(order):
            run = recorders[variant].run()
            for k, (launch, seconds) in enumerate(zip(run.launches, run.task_seconds, strict=True)):
                # Turn -1 is a warm-up.
                if launch.kernel is not None and is_first[variant][launch.kernel] and turn >= 0:
                    times[launch.kernel][variant][k].append(seconds)
    return times


def table(title: str, kernels: Mapping[str, Kernel]) -> Table:
    """Format the kernels that take longest, with their slowdown relative to the best variant."""
    result = Table(title=title)
    result.add_column("kernel")
    result.add_column("ms", justify="right")
    result.add_column("slowdown", justify="right")
    result.add_column("best variant")
    for name, kernel in sorted(kernels.items(), key=lambda item: -item[1].seconds)[:MAX_LISTED_KERNELS]:
        best = "the halves disagree" if kernel.best is None else str(kernel.best)
        result.add_row(name, f"{1e3 * kernel.seconds:.3f}", f"{kernel.slowdown:.3f}", best)
    return result


if __name__ == "__main__":
    main()

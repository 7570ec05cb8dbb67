"""What plans by rules lose to the best of those that are worth trying, kernel by kernel in whole models, on one thread.

    python benchmarks/plans.py [MODEL …] [--target cpu] [--turns 12]

MODEL is an ONNX file or a name of the set of benchmarks/models.py. It is compiled once for each way to choose tiles, and all of
these run in turns, in the same memory. What is best in one half of the turns is compared with the rules' plan in the other
half, and the other way round, so that chance finds nothing. Tasks are timed as they pass, without what lies between them, and
of each piece of about `PIECE` seconds the least time counts, whatever else the machine does.
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
from dlc.measure.timeline import Watch
from dlc.passes.tiling.variants import VARIANTS, Variant
from dlc.pipelines import stages_of
from dlc.runtime.cpu.artifact import Artifact
from dlc.target import resolve

MODELS = ["resnet50", "densenet121", "mobilenet_v2", "unet", "bert_base_128", "gpt2_decode_kv", "whisper_encoder"]
# A plan that is slower than the best one by less is as good.
NEAR = 1.05
SHOWN = 15
# The seconds of which the least time counts, whatever tasks they are cut into: shorter ones are whole more often beside other
# work, so that small tasks would look quick.
PIECE = 50e-6

# The seconds of its tasks in each turn, by the number of a launch in a run.
Launches: TypeAlias = "Mapping[int, Sequence[NDArray[np.float64]]]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--turns", type=int, default=12, help="how often each way runs; at least 2")
    arguments = parser.parse_args()
    if arguments.turns < 2:
        parser.error("--turns: at least 2, of which one half is compared with the other")
    console, near, total = Console(), 0.0, 0.0
    for name in arguments.models:
        kernels = measured(name, arguments.target, arguments.turns)
        seconds = sum(k.seconds for k in kernels.values())
        good = sum(k.seconds for k in kernels.values() if k.loss <= NEAR)
        near, total = near + good, total + seconds
        console.print(table(f"{name}: within 5 % of the best for {good / seconds:.1%} of {1e3 * seconds:.1f} ms", kernels))
    console.print(f"All of them: within 5 % of the best for {near / total:.1%} of the time.")


@dataclass(frozen=True)
class Kernel:
    """All runs of a kernel in a model: seconds by the rules' plan, how many times those of the best one that is, and which.

    None is the best where the halves of the turns do not agree.
    """

    seconds: float
    loss: float
    best: Variant | None

    @staticmethod
    def of(ways: Mapping[int, Launches]) -> Kernel:
        """By what its launches take in each way; ways that come to the same code are one."""
        halves = [
            {way: sum(_least(t[half::2]) for t in launches.values()) for way, launches in ways.items()} for half in (0, 1)
        ]
        best = [min(half, key=lambda way: half[way]) for half in halves]
        loss = sum(half[0] / half[way] for half, way in zip(halves, reversed(best), strict=True)) / 2
        return Kernel(min(half[0] for half in halves), loss, VARIANTS[best[0]] if best[0] == best[1] else None)


def _least(turns: Sequence[NDArray[np.float64]]) -> float:
    """The seconds of a launch of which no piece is interrupted by what else the machine does."""
    tasks = np.asarray(turns)
    ends = np.cumsum(np.median(tasks, axis=0))
    pieces = max(1, round(ends[-1] / PIECE)) if len(ends) else 0
    first = np.unique(np.searchsorted(ends, np.arange(pieces) / max(1, pieces) * ends[-1:]))
    return float(np.add.reduceat(tasks, first, axis=1).min(axis=0).sum()) if pieces else 0.0


def measured(name: str, target: str, turns: int) -> dict[str, Kernel]:
    """The kernels of a model by name."""
    model, inputs = load(name)
    artifacts = [compiled(model, inputs, target, way) for way in range(len(VARIANTS))]
    return {kernel: Kernel.of(of) for kernel, of in seconds_of(artifacts, inputs, turns).items()}


def compiled(model: Any, inputs: Mapping[str, np.ndarray[Any, Any]], target: str, way: int) -> Artifact:
    """A model whose tiles are chosen in one of the ways."""
    stages = with_variant(stages_of(resolve(target)), way)
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


def seconds_of(
    artifacts: Sequence[Artifact], inputs: Mapping[str, np.ndarray[Any, Any]], turns: int
) -> Mapping[str, Mapping[int, Launches]]:
    """By kernel and way, what launches take in each turn; of ways that come to the same code only the first is there."""
    codes: dict[tuple[str, bytes], int] = {}
    first = [{k.name: codes.setdefault((k.name, k.code), way) == way for k in a.kernels} for way, a in enumerate(artifacts)]
    watches: list[Watch] = []
    for a in artifacts:
        watches.append(Watch(a, [np.ascontiguousarray(inputs[i.name]) for i in a.host.inputs], 1, *watches[:1]))
    times: dict[str, dict[int, dict[int, list[NDArray[np.float64]]]]] = {
        kernel: defaultdict(lambda: defaultdict(list)) for kernel in first[0]
    }
    for turn in range(-1, turns):
        order = range(len(watches))
        for way in order if turn % 2 == 0 else reversed(order):
            run = watches[way].run()
            for k, (launch, seconds) in enumerate(zip(run.launches, run.of_tasks, strict=True)):
                # The first turn of all touches memory.
                if launch.kernel is not None and first[way][launch.kernel] and turn >= 0:
                    times[launch.kernel][way][k].append(seconds)
    return times


def table(title: str, kernels: Mapping[str, Kernel]) -> Table:
    """The kernels that take longest, and what is lost."""
    result = Table(title=title)
    result.add_column("kernel")
    result.add_column("ms", justify="right")
    result.add_column("of the best", justify="right")
    result.add_column("the best")
    for name, kernel in sorted(kernels.items(), key=lambda item: -item[1].seconds)[:SHOWN]:
        best = "the halves do not agree" if kernel.best is None else str(kernel.best)
        result.add_row(name, f"{1e3 * kernel.seconds:.3f}", f"{kernel.loss:.3f}", best)
    return result


if __name__ == "__main__":
    main()

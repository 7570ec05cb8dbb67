"""A run of a compiled model, launch by launch: when each began, and how long it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from dlc.runtime.artifact import Artifact
from dlc.runtime.host_program import Launch, OpenLaunch, walk


def timeline(
    artifact: Artifact, inputs: Sequence[NDArray[Any]], threads: int, rounds: int = 5
) -> list[tuple[int, str, float, float]]:
    """The launches of the fastest of some runs: their numbers in the program's text (-1: a copy), kernels, begins, seconds.

    What is between two launches is the host program's own, and left out.
    """
    program = artifact.program(threads)
    program.run(inputs)
    texts = [i for i, _ in walk(artifact.host.instructions) if isinstance(i, Launch | OpenLaunch) and i.kernel is not None]
    runs = [program.profile(inputs) for _ in range(rounds)]
    best = min(runs, key=lambda run: sum(seconds for _, seconds in run))
    number = {id(launch): k for k, launch in enumerate(texts)}
    begin, spans = 0.0, list[tuple[int, str, float, float]]()
    for launch, seconds in best:
        spans.append((number.get(id(launch), -1), launch.kernel or "copy", begin, seconds))
        begin += seconds
    return spans

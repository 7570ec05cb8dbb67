"""A few runs of a compiled program: what each kernel takes, and one of them as a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from numpy.typing import NDArray

from dlc.explore.data import Measured
from dlc.measure.kernels import measure, numbers_of
from dlc.measure.timeline import Span, thread_names
from dlc.runtime.artifact import Artifact
from dlc.runtime.opencl.open_program import OpenOpenCLProgram
from dlc.runtime.opencl.program import OpenCLProgram
from dlc.target import host_supports

# How often a program is run on a device to measure its kernels.
_ROUNDS = 5


@dataclass(frozen=True)
class Taken:
    """What the runs of a kernel take in one call; `flops` and `least`, the time that limits allow, where they are known."""

    seconds: float
    bytes: int
    flops: int | None = None
    least: float | None = None


@dataclass(frozen=True)
class Run:
    measured: Measured
    kernels: Mapping[str, Taken]


def run_of(made: object, inputs: Sequence[NDArray[Any]], threads: int, seconds: float) -> Run | None:
    """What runs of a program show, if it is one that is looked into: kernels on a CPU, or on an OpenCL device.

    On a CPU it is run for about so many seconds, but a few times at least.
    """
    if isinstance(made, Artifact):
        return _on_cpu(made, inputs, threads, seconds) if host_supports(made.target) else None
    if isinstance(made, OpenOpenCLProgram):
        made = made.at(inputs)
    return _on_device(made, inputs) if isinstance(made, OpenCLProgram) else None


def _on_cpu(artifact: Artifact, inputs: Sequence[NDArray[Any]], threads: int, seconds: float) -> Run:
    measured = measure(artifact, inputs, threads, seconds=seconds)
    limits, spans = measured.limits, measured.timeline
    shown = Measured(spans, thread_names(spans), limits.flops, limits.cache, limits.memory)
    return Run(shown, {t.name: Taken(t.seconds, t.bytes, t.flops, t.least) for t in measured.kernels})


def _on_device(program: OpenCLProgram, inputs: Sequence[NDArray[Any]]) -> Run:
    """Each launch is waited for, so that times have that in them; the first run is not counted."""
    program.run(inputs)
    runs = [program.profile(inputs) for _ in range(_ROUNDS)]
    launches = [launch for launch, _ in runs[0]]
    taken: dict[str, Taken] = {}
    spans, begin = list[Span](), 0.0
    for k, (launch, number) in enumerate(zip(launches, numbers_of(program.host, launches), strict=True)):
        name, seconds = launch.kernel or "copy", median(run[k][1] for run in runs)
        before = taken.get(name, Taken(0.0, 0))
        taken[name] = Taken(before.seconds + seconds, before.bytes + launch.bytes)
        spans.append(Span(number, name, begin, seconds))
        begin += seconds
    return Run(Measured(tuple(spans), (str(program.session.device),)), taken)

"""Where a model's time goes: each kernel's share, and how near it comes to what the machine can do; and a run as a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from dlc.backends.cpu.limits import Limits, measured_limits
from dlc.dims import substitute
from dlc.runtime.artifact import Artifact
from dlc.runtime.host_program import Launch, OpenLaunch, kernel_sizes, walk

# What is long is run less often: for so many seconds, but this often at least.
_SECONDS, _FEWEST = 3.0, 3


@dataclass(frozen=True)
class KernelTime:
    """What the runs of one kernel take in one call of a model: seconds, floating-point operations and bytes of all of them.

    `least` is the time that the machine's limits allow; a kernel called `copy` is a copy.
    """

    name: str
    origins: tuple[str, ...]
    runs: int
    seconds: float
    flops: int
    bytes: int
    least: float


@dataclass(frozen=True)
class Span:
    """A launch in a run: its number in the program's text (-1: a copy), its kernel, when it began, and its seconds."""

    launch: int
    kernel: str
    start: float
    seconds: float


@dataclass(frozen=True)
class Measurement:
    """Runs of a compiled model, launch by launch, beside the limits of the machine."""

    artifact: Artifact
    threads: int
    limits: Limits
    runs: Sequence[Sequence[tuple[Launch, float]]]

    @cached_property
    def kernels(self) -> list[KernelTime]:
        """The kernels, those that take longest first; medians of all runs."""
        kernels = {kernel.name: kernel for kernel in self.artifact.kernels}
        times: dict[str, KernelTime] = {}
        for k, (launch, _) in enumerate(self.runs[0]):
            name = launch.kernel or "copy"
            kernel, before = kernels.get(name), times.get(name)
            flops = int(substitute(kernel.flops, kernel_sizes(launch.numbers))) if kernel else 0
            bytes = sum(launch.sizes)
            times[name] = KernelTime(
                name,
                kernel.origins if kernel else (),
                (before.runs if before else 0) + 1,
                (before.seconds if before else 0) + median(run[k][1] for run in self.runs),
                (before.flops if before else 0) + flops,
                (before.bytes if before else 0) + bytes,
                (before.least if before else 0) + self.limits.seconds(flops, bytes),
            )
        return sorted(times.values(), key=lambda t: -t.seconds)

    @cached_property
    def timeline(self) -> list[Span]:
        """The fastest run; what is between two launches is the host program's own, and left out."""
        launches = (i for i, _ in walk(self.artifact.host.instructions) if isinstance(i, Launch | OpenLaunch))
        number = {id(launch): k for k, launch in enumerate(launch for launch in launches if launch.kernel is not None)}
        begin, spans = 0.0, list[Span]()
        for launch, seconds in min(self.runs, key=lambda run: sum(seconds for _, seconds in run)):
            spans.append(Span(number.get(id(launch), -1), launch.kernel or "copy", begin, seconds))
            begin += seconds
        return spans


def measure(artifact: Artifact, inputs: Sequence[NDArray[Any]], threads: int, rounds: int = 15) -> Measurement:
    """Runs a compiled model up to `rounds` times, after a run that is not counted."""
    program, limits = artifact.program(threads), measured_limits(artifact.target, threads)
    program.run(inputs)
    runs, began = list[Sequence[tuple[Launch, float]]](), perf_counter()
    while len(runs) < _FEWEST or (len(runs) < rounds and perf_counter() < began + _SECONDS):
        runs.append(program.profile(inputs))
    return Measurement(artifact, threads, limits, runs)

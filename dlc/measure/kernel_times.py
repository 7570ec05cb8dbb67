"""Measure the time of each kernel of a model: its fraction of the total, and its ratio to the limits of the machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from statistics import median
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from dlc.backends.cpu import limits as cpu_limits
from dlc.backends.limits import Limits
from dlc.backends.opencl import limits as opencl_limits
from dlc.measure.device_run import DeviceRun
from dlc.measure.timeline import TaskSpan, TimedRun, TimelineRecorder, thread_names
from dlc.runtime.compiled_program import CompiledProgram
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.program.host_program import BufferRef, HostProgram, Launch

# The rate of a shorter launch is inaccurate.
_MIN_RATE_SECONDS = 1e-5


@dataclass(frozen=True)
class KernelTime:
    """The total time, floating-point operations and bytes of the launches of one kernel in one call of a model.

    `min_seconds` is the minimum time that the limits of the machine allow. The kernel `copy` is a memory copy.
    """

    name: str
    origins: tuple[str, ...]
    runs: int
    seconds: float
    flops: int
    bytes: int
    min_seconds: float


@dataclass(frozen=True)
class Measurement:
    """Measured runs of a compiled model, and the limits of the machine or device; `host` is the program that ran."""

    artifact: CompiledProgram
    host: HostProgram
    threads: int
    limits: Limits
    runs: Sequence[TimedRun | DeviceRun]

    @property
    def seconds(self) -> float:
        """The median of all runs."""
        return median(run.seconds for run in self.runs)

    @property
    def slowdown(self) -> float:
        """The median of all runs relative to the fastest one; above 1.1 other work probably shares the cores."""
        fastest = min(run.seconds for run in self.runs)
        return self.seconds / fastest if fastest else 1.0

    @cached_property
    def kernels(self) -> list[KernelTime]:
        """The kernels by descending time; medians of all runs."""
        kernels = {kernel.name: kernel for kernel in self.artifact.kernels}
        times: dict[str, KernelTime] = {}
        for k, launch in enumerate(self.runs[0].launches):
            name = launch.kernel or "copy"
            kernel, earlier_times = kernels.get(name), times.get(name)
            flops = launch.evaluate_size(kernel.flops) if kernel else 0
            times[name] = KernelTime(
                name,
                kernel.origins if kernel else (),
                (earlier_times.runs if earlier_times else 0) + 1,
                (earlier_times.seconds if earlier_times else 0) + median(run.launch_seconds[k] for run in self.runs),
                (earlier_times.flops if earlier_times else 0) + flops,
                (earlier_times.bytes if earlier_times else 0) + launch.bytes,
                (earlier_times.min_seconds if earlier_times else 0) + self.limits.seconds(flops, launch.bytes),
            )
        return sorted(times.values(), key=lambda t: -t.seconds)

    @cached_property
    def timeline(self) -> tuple[TaskSpan, ...]:
        """The spans of the fastest run."""
        run = min(self.runs, key=lambda run: run.seconds)
        return tuple(run.spans(launch_indices(self.host, run.launches)))

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of the rows (threads) of the timeline."""
        if isinstance(self.artifact, DeviceArtifact):
            return (str(self.artifact.builder.device),)
        return thread_names(self.timeline)


def launch_indices(host: HostProgram, launches: Sequence[Launch]) -> list[int]:
    """Return the index of each launch in the program's text, or -1 for a copy; equal launches cycle through their indices."""
    kernel_launches = [launch for launch in host.launches if launch.kernel is not None]
    indices_by_launch = defaultdict[tuple[str | None, tuple[BufferRef, ...]], list[int]](list)
    for k, launch in enumerate(kernel_launches):
        indices_by_launch[launch.kernel, launch.arguments].append(k)
    cycles_by_launch = {key: cycle(indices) for key, indices in indices_by_launch.items()}
    return [next(cycles_by_launch[launch.kernel, launch.arguments]) if launch.kernel is not None else -1 for launch in launches]


def measure(
    artifact: CompiledProgram, inputs: Sequence[NDArray[Any]], threads: int, rounds: int = 15, seconds: float = 3.0
) -> Measurement:
    """Run a compiled model up to `rounds` times, for about `seconds`, after a warm-up run.

    If the warm-up run takes longer than `seconds`, it is the only run. On a device the time of a launch ends at its
    completion.
    """
    host = artifact.host
    if isinstance(artifact, DeviceArtifact):
        program = artifact.program
        limits, run = opencl_limits.measured_limits(program.session), lambda: DeviceRun(program.profile(inputs))
        host, _ = program.specialize(inputs)
    else:
        limits, run = cpu_limits.measured_limits(artifact.target, threads), TimelineRecorder(artifact, inputs, threads).run
    first = run()
    if first.seconds > seconds:
        return _with_reached_limits(Measurement(artifact, host, threads, limits, [first]))
    runs, start = list[TimedRun | DeviceRun](), perf_counter()
    while not runs or (len(runs) < rounds and perf_counter() < start + seconds):
        runs.append(run())
    return _with_reached_limits(Measurement(artifact, host, threads, limits, runs))


def _with_reached_limits(measurement: Measurement) -> Measurement:
    """Raise the limit of operations per second to the rate of the fastest kernel: the measured limit is too low under load."""
    times = [kernel for kernel in measurement.kernels if kernel.seconds >= _MIN_RATE_SECONDS * kernel.runs]
    reached = max((kernel.flops / kernel.seconds for kernel in times), default=0.0)
    limits = measurement.limits
    return replace(measurement, limits=replace(limits, flops=max(limits.flops, reached)))

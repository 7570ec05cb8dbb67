"""Where a model's time goes: each kernel's share, and how near it comes to what the machine can do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from statistics import median
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from dlc.backends.cpu import limits as of_processor
from dlc.backends.limits import Limits
from dlc.backends.opencl import limits as of_device
from dlc.dims import substitute
from dlc.measure.on_device import DeviceRun
from dlc.measure.timeline import Span, Timed, Watch, thread_names
from dlc.runtime.load import CompiledProgram
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.open_program import OpenOpenCLProgram
from dlc.runtime.program.host_program import HostProgram, Launch, OpenLaunch, Place, kernel_sizes, walk
from dlc.runtime.program.open_program import OpenProgram


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
class Measurement:
    """Runs of a compiled model beside the limits of the machine, or of the device; `host` is the program that ran."""

    artifact: CompiledProgram
    host: HostProgram | OpenProgram
    threads: int
    limits: Limits
    runs: Sequence[Timed | DeviceRun]

    @property
    def seconds(self) -> float:
        """The median of all runs."""
        return median(run.seconds for run in self.runs)

    @cached_property
    def kernels(self) -> list[KernelTime]:
        """The kernels, those that take longest first; medians of all runs."""
        kernels = {kernel.name: kernel for kernel in self.artifact.kernels}
        times: dict[str, KernelTime] = {}
        for k, launch in enumerate(self.runs[0].launches):
            name = launch.kernel or "copy"
            kernel, before = kernels.get(name), times.get(name)
            flops = int(substitute(kernel.flops, kernel_sizes(launch.numbers))) if kernel else 0
            times[name] = KernelTime(
                name,
                kernel.origins if kernel else (),
                (before.runs if before else 0) + 1,
                (before.seconds if before else 0) + median(run.of_launches[k] for run in self.runs),
                (before.flops if before else 0) + flops,
                (before.bytes if before else 0) + launch.bytes,
                (before.least if before else 0) + self.limits.seconds(flops, launch.bytes),
            )
        return sorted(times.values(), key=lambda t: -t.seconds)

    @cached_property
    def timeline(self) -> tuple[Span, ...]:
        """The fastest run, thread by thread."""
        run = min(self.runs, key=lambda run: run.seconds)
        return tuple(run.spans(numbers_of(self.host, run.launches)))

    @property
    def rows(self) -> tuple[str, ...]:
        """What the threads of the timeline are called."""
        if isinstance(self.artifact, DeviceArtifact):
            return (str(self.artifact.builder.device),)
        return thread_names(self.timeline)


def numbers_of(host: HostProgram | OpenProgram, launches: Sequence[Launch]) -> list[int]:
    """The number of each of some launches in the text of their program, of which alike ones take turns; -1 of a copy."""
    kernels = [i for i, _ in walk(host.instructions) if isinstance(i, Launch | OpenLaunch) and i.kernel is not None]
    numbers = defaultdict[tuple[str | None, tuple[Place, ...]], list[int]](list)
    for k, launch in enumerate(kernels):
        numbers[launch.kernel, launch.arguments].append(k)
    turns = {key: cycle(own) for key, own in numbers.items()}
    return [next(turns[launch.kernel, launch.arguments]) if launch.kernel is not None else -1 for launch in launches]


def measure(
    artifact: CompiledProgram, inputs: Sequence[NDArray[Any]], threads: int, rounds: int = 15, seconds: float = 3.0
) -> Measurement:
    """Runs a compiled model up to `rounds` times, for about so many seconds.

    The first run is not counted; if it takes so long alone it is the only one. On a device each launch is waited for, so that
    its time has that in it.
    """
    host = artifact.host
    if isinstance(artifact, DeviceArtifact):
        program = artifact.program
        limits, run = of_device.measured_limits(program.session), lambda: DeviceRun(program.profile(inputs))
        host = program.at(inputs)[0] if isinstance(program, OpenOpenCLProgram) else program.host
    else:
        limits, run = of_processor.measured_limits(artifact.target, threads), Watch(artifact, inputs, threads).run
    first = run()
    if first.seconds > seconds:
        return Measurement(artifact, host, threads, limits, [first])
    runs, began = list[Timed | DeviceRun](), perf_counter()
    while not runs or (len(runs) < rounds and perf_counter() < began + seconds):
        runs.append(run())
    return Measurement(artifact, host, threads, limits, runs)

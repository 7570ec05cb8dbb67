"""A few runs of a compiled program: what each kernel takes, and one of them as a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from numpy.typing import NDArray

from dlc.backends.limits import Limits
from dlc.backends.opencl.limits import measured_limits
from dlc.dims import Size, substitute
from dlc.explore.data import Measured
from dlc.measure.kernels import measure, numbers_of
from dlc.measure.timeline import Span, thread_names
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.open_program import OpenNativeProgram
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.open_program import OpenOpenCLProgram
from dlc.runtime.opencl.program import OpenCLProgram
from dlc.runtime.program.host_program import HostProgram, kernel_sizes
from dlc.runtime.program.open_program import OpenProgram
from dlc.target import host_supports

# How often a program is run on a device to measure its kernels.
_ROUNDS = 5


@dataclass(frozen=True)
class Taken:
    """What the runs of a kernel take in one call, and how many there were; `least` is the time that limits allow."""

    runs: int
    seconds: float
    bytes: int
    flops: int
    least: float


@dataclass(frozen=True)
class Run:
    """`decided` are the sizes that data decided in it."""

    measured: Measured
    kernels: Mapping[str, Taken]
    decided: Mapping[str, int]


def run_of(made: object, inputs: Sequence[NDArray[Any]], threads: int, seconds: float, work: Mapping[str, Size]) -> Run | None:
    """What runs of a program show, if it is one that is looked into: kernels on a CPU, or on an OpenCL device.

    On a CPU it is run for about so many seconds, but a few times at least. `work` is the floating-point operations of a run of
    each kernel.
    """
    if isinstance(made, Artifact):
        return _on_cpu(made, inputs, threads, seconds) if host_supports(made.target) else None
    if not isinstance(made, DeviceArtifact):
        return None
    program = made.program
    host, decided = program.at(inputs) if isinstance(program, OpenOpenCLProgram) else (program.host, {})
    return _on_device(program, host, decided, inputs, work)


def _on_cpu(artifact: Artifact, inputs: Sequence[NDArray[Any]], threads: int, seconds: float) -> Run:
    measured = measure(artifact, inputs, threads, seconds=seconds)
    limits, spans, program = measured.limits, measured.timeline, None
    if isinstance(artifact.host, OpenProgram) and artifact.host.decided:
        program = artifact.program(threads)
    return Run(
        _measured([run.seconds for run in measured.runs], spans, thread_names(spans), limits),
        {t.name: Taken(t.runs, t.seconds, t.bytes, t.flops, t.least) for t in measured.kernels},
        program.decided(inputs) if isinstance(program, OpenNativeProgram) else {},
    )


def _on_device(
    program: OpenCLProgram | OpenOpenCLProgram,
    host: HostProgram,
    decided: Mapping[str, int],
    inputs: Sequence[NDArray[Any]],
    work: Mapping[str, Size],
) -> Run:
    """Each launch is waited for, so that times have that in them; the first run is not counted."""
    limits = measured_limits(program.session)
    program.run(inputs)
    runs = [program.profile(inputs) for _ in range(_ROUNDS)]
    launches = [launch for launch, _ in runs[0]]
    taken: dict[str, Taken] = {}
    spans, begin = list[Span](), 0.0
    for k, (launch, number) in enumerate(zip(launches, numbers_of(host, launches), strict=True)):
        name, seconds = launch.kernel or "copy", median(run[k][1] for run in runs)
        flops = int(substitute(work.get(name, 0), kernel_sizes(launch.numbers))) if launch.kernel else 0
        before, least = taken.get(name, Taken(0, 0.0, 0, 0, 0.0)), limits.seconds(flops, launch.bytes)
        taken[name] = Taken(
            before.runs + 1, before.seconds + seconds, before.bytes + launch.bytes, before.flops + flops, before.least + least
        )
        spans.append(Span(number, name, begin, seconds))
        begin += seconds
    return Run(
        _measured([sum(seconds for _, seconds in run) for run in runs], tuple(spans), (str(program.session.device),), limits),
        taken,
        decided,
    )


def _measured(runs: Sequence[float], spans: tuple[Span, ...], rows: tuple[str, ...], limits: Limits) -> Measured:
    return Measured(tuple(runs), spans, rows, limits.flops, limits.cache, limits.memory)

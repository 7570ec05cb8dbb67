"""A few runs of a compiled program: what each kernel takes, and one of them as a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dlc.explore.data import Measured
from dlc.measure.kernels import measure
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.open_program import OpenNativeProgram
from dlc.runtime.load import CompiledProgram
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.open_program import OpenOpenCLProgram
from dlc.runtime.program.open_program import OpenProgram
from dlc.target import host_supports


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


def run_of(made: object, inputs: Sequence[NDArray[Any]], threads: int, seconds: float) -> Run | None:
    """What runs of a program show, if it is one that is looked into: kernels on a CPU, or on an OpenCL device.

    It is run for about so many seconds, but a few times at least.
    """
    if not isinstance(made, CompiledProgram) or (isinstance(made, Artifact) and not host_supports(made.target)):
        return None
    found = measure(made, inputs, threads, seconds=seconds)
    limits = found.limits
    return Run(
        Measured(
            tuple(run.seconds for run in found.runs), found.timeline, found.rows, limits.flops, limits.cache, limits.memory
        ),
        {t.name: Taken(t.runs, t.seconds, t.bytes, t.flops, t.least) for t in found.kernels},
        _decided(made, inputs, threads),
    )


def _decided(made: CompiledProgram, inputs: Sequence[NDArray[Any]], threads: int) -> Mapping[str, int]:
    """The sizes that the data of a call decides."""
    if not isinstance(made.host, OpenProgram) or not made.host.decided:
        return {}
    program = made.program if isinstance(made, DeviceArtifact) else made.program(threads)
    if isinstance(program, OpenOpenCLProgram):
        return program.at(inputs)[1]
    return program.decided(inputs) if isinstance(program, OpenNativeProgram) else {}

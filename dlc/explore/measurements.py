"""Run a compiled program a few times and measure its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dlc.explore.data import RunMeasurements
from dlc.measure.kernel_times import measure
from dlc.runtime.compiled_program import CompiledProgram
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.target import host_supports


@dataclass(frozen=True)
class KernelTimes:
    """The times of a kernel in one call; `limit_seconds` is the time that the machine's limits allow."""

    runs: int
    seconds: float
    bytes: int
    flops: int
    limit_seconds: float


@dataclass(frozen=True)
class ProgramRun:
    """The measurements of a program; `data_dependent_sizes` are the sizes that the run computed."""

    measurements: RunMeasurements
    kernels: Mapping[str, KernelTimes]
    data_dependent_sizes: Mapping[str, int]


def measure_program(artifact: object, inputs: Sequence[NDArray[Any]], threads: int, seconds: float) -> ProgramRun | None:
    """Run a program for about `seconds`, at least a few times, and return its measurements.

    Return None if it has no native kernels, or if its target does not run on this machine.
    """
    if not isinstance(artifact, CompiledProgram) or (isinstance(artifact, Artifact) and not host_supports(artifact.target)):
        return None
    measurement = measure(artifact, inputs, threads, seconds=seconds)
    limits = measurement.limits
    return ProgramRun(
        RunMeasurements(
            tuple(run.seconds for run in measurement.runs),
            measurement.timeline,
            measurement.rows,
            limits.flops,
            limits.cache,
            limits.memory,
        ),
        {t.name: KernelTimes(t.runs, t.seconds, t.bytes, t.flops, t.min_seconds) for t in measurement.kernels},
        _data_dependent_sizes(artifact, inputs, threads),
    )


def _data_dependent_sizes(artifact: CompiledProgram, inputs: Sequence[NDArray[Any]], threads: int) -> Mapping[str, int]:
    """Return the data-dependent sizes of a call."""
    if not artifact.host.data_dependent_sizes:
        return {}
    if isinstance(artifact, DeviceArtifact):
        return artifact.program.specialize(inputs)[1]
    return artifact.program(threads).data_dependent_sizes(inputs)

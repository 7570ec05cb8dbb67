"""Run a compiled program a few times and measure its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dlc.explore.data import RunMeasurements
from dlc.measure.kernel_times import measure
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.dynamic_program import DynamicNativeProgram
from dlc.runtime.load import CompiledProgram
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.dynamic_program import DynamicOpenCLProgram
from dlc.runtime.program.dynamic_program import DynamicProgram
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
    """The measurements of a program; `data_dependent_sizes` are the data-dependent sizes of the run."""

    measured: RunMeasurements
    kernels: Mapping[str, KernelTimes]
    data_dependent_sizes: Mapping[str, int]


def measure_program(made: object, inputs: Sequence[NDArray[Any]], threads: int, seconds: float) -> ProgramRun | None:
    """Run a program for about `seconds`, at least a few times, and return its measurements.

    Return None if it has no native kernels, or if its target does not run on this machine.
    """
    if not isinstance(made, CompiledProgram) or (isinstance(made, Artifact) and not host_supports(made.target)):
        return None
    measurement = measure(made, inputs, threads, seconds=seconds)
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
        _decided(made, inputs, threads),
    )


def _decided(made: CompiledProgram, inputs: Sequence[NDArray[Any]], threads: int) -> Mapping[str, int]:
    """Return the data-dependent sizes of a call."""
    if not isinstance(made.host, DynamicProgram) or not made.host.data_dependent_sizes:
        return {}
    program = made.program if isinstance(made, DeviceArtifact) else made.program(threads)
    if isinstance(program, DynamicOpenCLProgram):
        return program.at(inputs)[1]
    return program.data_dependent_sizes(inputs) if isinstance(program, DynamicNativeProgram) else {}

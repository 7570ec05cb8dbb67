"""Where a model's time goes: each kernel's share, and how near it comes to what the machine can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from numpy.typing import NDArray

from dlc.backends.cpu.limits import Limits, measured_limits
from dlc.dims import substitute
from dlc.runtime.artifact import Artifact
from dlc.runtime.host_program import kernel_sizes


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


def kernel_times(
    artifact: Artifact, inputs: Sequence[NDArray[Any]], threads: int, rounds: int = 15
) -> tuple[list[KernelTime], Limits]:
    """The kernels of a compiled model, those that take longest first, and the limits of the machine; medians of `rounds`."""
    program = artifact.program(threads)
    limits = measured_limits(artifact.target, threads)
    program.run(inputs)
    profiles = [program.profile(inputs) for _ in range(rounds)]
    kernels = {kernel.name: kernel for kernel in artifact.kernels}
    times: dict[str, KernelTime] = {}
    for k, (launch, _) in enumerate(profiles[0]):
        name = launch.kernel or "copy"
        kernel, before = kernels.get(name), times.get(name)
        flops = int(substitute(kernel.flops, kernel_sizes(launch.numbers))) if kernel else 0
        bytes = sum(launch.sizes)
        times[name] = KernelTime(
            name,
            kernel.origins if kernel else (),
            (before.runs if before else 0) + 1,
            (before.seconds if before else 0) + median(profile[k][1] for profile in profiles),
            (before.flops if before else 0) + flops,
            (before.bytes if before else 0) + bytes,
            (before.least if before else 0) + limits.seconds(flops, bytes),
        )
    return sorted(times.values(), key=lambda t: -t.seconds), limits

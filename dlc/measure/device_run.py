"""A run on an OpenCL device with the time of each launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.measure.timeline import TaskSpan
from dlc.runtime.program.host_program import Launch


@dataclass(frozen=True)
class DeviceRun:
    """Consecutive launches with their times in seconds."""

    times: Sequence[tuple[Launch, float]]

    @property
    def launches(self) -> list[Launch]:
        return [launch for launch, _ in self.times]

    @property
    def launch_seconds(self) -> list[float]:
        return [seconds for _, seconds in self.times]

    @property
    def seconds(self) -> float:
        return sum(self.launch_seconds)

    def spans(self, launch_indices: Sequence[int]) -> Iterator[TaskSpan]:
        """Yield the launches as spans; `launch_indices` are their indices in the program's text."""
        begin = 0.0
        for (launch, seconds), launch_index in zip(self.times, launch_indices, strict=True):
            yield TaskSpan(launch_index, launch.kernel or "copy", begin, seconds)
            begin += seconds

"""A run on an OpenCL device, launch by launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.measure.timeline import Span
from dlc.runtime.program.host_program import Launch


@dataclass(frozen=True)
class DeviceRun:
    """Launches one after the other, each with its seconds."""

    times: Sequence[tuple[Launch, float]]

    @property
    def launches(self) -> list[Launch]:
        return [launch for launch, _ in self.times]

    @property
    def of_launches(self) -> list[float]:
        return [seconds for _, seconds in self.times]

    @property
    def seconds(self) -> float:
        return sum(self.of_launches)

    def spans(self, numbers: Sequence[int]) -> Iterator[Span]:
        begin = 0.0
        for (launch, seconds), number in zip(self.times, numbers, strict=True):
            yield Span(number, launch.kernel or "copy", begin, seconds)
            begin += seconds

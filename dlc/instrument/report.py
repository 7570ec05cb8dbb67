"""Where a compilation spent its time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from dlc.instrument.dump import PassRecord


@dataclass(frozen=True)
class KernelReport:
    """One kernel: how often the program runs it, the bytes of its object, and how long its code took to make."""

    name: str
    runs: int
    object_bytes: int
    seconds: float


@dataclass
class Report:
    """Seconds per phase, passes and kernels of one compilation.

    Phases of kernels are sums over the processes that compiled them, so that they can exceed `seconds`, which is the time
    that passed.
    """

    phases: dict[str, float] = field(default_factory=dict[str, float])
    passes: list[PassRecord] = field(default_factory=list[PassRecord])
    kernels: list[KernelReport] = field(default_factory=list[KernelReport])
    seconds: float = 0.0

    def add(self, phase: str, seconds: float) -> None:
        """Adds to a phase's time."""
        self.phases[phase] = self.phases.get(phase, 0.0) + seconds

    @contextmanager
    def timed(self, phase: str) -> Generator[None]:
        """Adds the time that the block takes to a phase."""
        began = perf_counter()
        try:
            yield
        finally:
            self.add(phase, perf_counter() - began)

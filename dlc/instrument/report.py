"""Reports of compilations and their progress. Loading models imports this module too, so it must not depend on the compiler."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple


class ProgressEvent(NamedTuple):
    """The next step of a compilation: a phase, and in it a pass or kernel; `done` of `total` are finished.

    `total` is 0 if it is unknown. As text: `kernels 3 of 40: matmul_2`.
    """

    phase: str
    item: str = ""
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        count = f" {self.done + 1} of {self.total}" if self.total else ""
        return f"{self.phase}{count}: {self.item}" if self.item else f"{self.phase}{count}"


# Called with the next step.
Progress = Callable[[ProgressEvent], None]


@dataclass(frozen=True)
class PassRecord:
    """A pass that ran: stage, spec, time, op counts before and after (0 if not counted), and the file if it changed the IR."""

    stage: str
    spec: str
    seconds: float
    ops_before: int
    ops_after: int
    change: str = ""
    file: str = ""


@dataclass(frozen=True)
class KernelReport:
    """A kernel: its runs per call, the size of its object in bytes, and its compile time."""

    name: str
    runs: int
    object_bytes: int
    seconds: float


@dataclass(frozen=True)
class TunedKernel:
    """A kernel whose tile plans were measured: the fastest plan and its index; seconds per run before and after."""

    name: str
    variant: int
    plan: str
    before: float
    after: float


@dataclass
class Report:
    """Seconds per phase, passes and kernels of one compilation.

    Phases of kernels are summed over the processes that compiled them, so that they can exceed `seconds`, the elapsed time.

    Attributes:
        seconds: Elapsed time.
        from_cache: Whether the program came from the cache, so that nothing was compiled.
        specialization_reason: Why a program with symbolic dimensions is specialized for the input shapes of each call.
        dynamic_domain: The sizes that the dynamic-shape program covers, if it does not cover all.
    """

    phases: dict[str, float] = field(default_factory=dict[str, float])
    passes: list[PassRecord] = field(default_factory=list[PassRecord])
    kernels: list[KernelReport] = field(default_factory=list[KernelReport])
    tuned: list[TunedKernel] = field(default_factory=list[TunedKernel])
    seconds: float = 0.0
    from_cache: bool = False
    specialization_reason: str | None = None
    dynamic_domain: str | None = None

    def add(self, phase: str, seconds: float) -> None:
        """Add to a phase's time."""
        self.phases[phase] = self.phases.get(phase, 0.0) + seconds

    @contextmanager
    def timed(self, phase: str) -> Generator[None]:
        """Add the time of the block to a phase."""
        start = perf_counter()
        try:
            yield
        finally:
            self.add(phase, perf_counter() - start)

    @contextmanager
    def timed_total(self, phase: str) -> Generator[None]:
        """Add the time of the block to a phase, and to the elapsed time."""
        start = perf_counter()
        try:
            with self.timed(phase):
                yield
        finally:
            self.seconds += perf_counter() - start

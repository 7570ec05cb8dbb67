"""Where a compilation spent its time; read by what loads models too, so that it knows no compiler."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple


class Doing(NamedTuple):
    """What a compilation is about to do: a phase, and in it a pass or a kernel, before which `done` of `total` are over.

    `total` is 0 where that is not known. As text: `kernels 3 of 40: matmul_2`.
    """

    phase: str
    what: str = ""
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        count = f" {self.done + 1} of {self.total}" if self.total else ""
        return f"{self.phase}{count}: {self.what}" if self.what else f"{self.phase}{count}"


# Told what is about to be done.
Progress = Callable[[Doing], None]


@dataclass(frozen=True)
class PassRecord:
    """One pass that ran: its stage and spec, what it took, ops before and after, 0 where nobody counted them; `file` if it
    changed something."""

    stage: str
    spec: str
    seconds: float
    ops_before: int
    ops_after: int
    change: str = ""
    file: str = ""


@dataclass(frozen=True)
class KernelReport:
    """One kernel: how often the program runs it, the bytes of its object, and how long its code took to make."""

    name: str
    runs: int
    object_bytes: int
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """A kernel whose tile plans were measured: the fastest, its number and in words; seconds of a run before and with it."""

    name: str
    variant: int
    plan: str
    before: float
    after: float


@dataclass
class Report:
    """Seconds per phase, passes and kernels of one compilation.

    Phases of kernels are sums over the processes that compiled them, so that they can exceed `seconds`, which is the time
    that passed. `from_cache`: nothing was compiled, as it had been before. `each_size`: why what has symbolic sizes is compiled
    for each set of them that it is called with, where one compilation cannot serve all; `served`: those that one serves.
    """

    phases: dict[str, float] = field(default_factory=dict[str, float])
    passes: list[PassRecord] = field(default_factory=list[PassRecord])
    kernels: list[KernelReport] = field(default_factory=list[KernelReport])
    tuned: list[Tuned] = field(default_factory=list[Tuned])
    seconds: float = 0.0
    from_cache: bool = False
    each_size: str | None = None
    served: str | None = None

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

    @contextmanager
    def passing(self, phase: str) -> Generator[None]:
        """Adds the time that the block takes to a phase, and to all that passed."""
        began = perf_counter()
        try:
            with self.timed(phase):
                yield
        finally:
            self.seconds += perf_counter() - began

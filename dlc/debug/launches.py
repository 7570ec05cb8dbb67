"""A compiled program's run, launch by launch: what each kernel gave, and from which other kernels it had what it read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ctypes import string_at
from dataclasses import dataclass, field

import numpy as np

from dlc.arrays import address_of
from dlc.dialects.dl.base import Array
from dlc.instrument.capture import Made
from dlc.instrument.culprit import Counterparts
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.program import Address
from dlc.runtime.program.host_program import NUMBER_BYTES, Decide, Launch

# The numbers of runs.
_Runs = frozenset[int]
_NONE: _Runs = frozenset()


@dataclass(frozen=True)
class Run:
    """A run of a kernel: the layers in it, what it gave, and the runs that had made what it read, or its sizes."""

    kernel: str
    origins: tuple[str, ...]
    outputs: tuple[Array, ...]
    read: _Runs


@dataclass
class Launches:
    """The runs of a program's kernels in one call, its results, and of each the runs that made it."""

    runs: list[Run] = field(default_factory=list[Run])
    results: list[Array] = field(default_factory=list[Array])
    makers: list[_Runs] = field(default_factory=list[_Runs])

    @property
    def made(self) -> list[Made]:
        """Everything that kernels gave, with its origins."""
        return [(run.origins, array) for run in self.runs for array in run.outputs]

    @property
    def arrays(self) -> list[Array]:
        """Everything that kernels gave."""
        return [array for _, array in self.made]

    def first_unlike(self, known: Counterparts, wrong: Iterable[int]) -> Run | None:
        """The earliest run from which values that are not among the known ones lead to one of the `wrong` results."""
        reached: set[int] = set()
        pending = [number for k in wrong for number in self.makers[k]]
        while pending:
            number = pending.pop()
            run = self.runs[number]
            if number not in reached and not known.has_all(run.outputs, run.origins):
                reached.add(number)
                pending += self.runs[number].read
        return self.runs[min(reached)] if reached else None


def launches_of(artifact: Artifact, inputs: Sequence[Array], most_bytes: int) -> Launches | None:
    """What a compiled program does with inputs; None if it does not say what its kernels give, or that is too much to keep."""
    kernels = {kernel.name: kernel for kernel in artifact.kernels}
    found, memory, kept, decided = Launches(), _Memory(), 0, _NONE

    def deciding(decide: Decide, address: Address) -> None:
        nonlocal decided
        decided |= memory.makers((address(decide.place), NUMBER_BYTES))

    def noted(launch: Launch, address: Address) -> None:
        nonlocal kept
        spans = [(address(place), size) for place, size in zip(launch.arguments, launch.sizes, strict=True)]
        if launch.kernel is None:
            memory.write(spans[0], memory.makers(spans[1]))
            return
        kernel = kernels[launch.kernel]
        read, given = spans[: -len(kernel.results)], spans[-len(kernel.results) :]
        kept += sum(size for _, size in given)
        # What follows a decision is as large as it says.
        run = decided.union(*map(memory.makers, read))
        arrays = [np.frombuffer(string_at(*span), dtype) for span, dtype in zip(given, kernel.results, strict=True)]
        for span in given:
            memory.write(span, frozenset([len(found.runs)]))
        found.runs.append(Run(kernel.name, kernel.origins, tuple(arrays) if kept <= most_bytes else (), run))

    if not all(kernel.results for kernel in artifact.kernels):
        return None
    # A program may write over what it is given.
    found.results = list(artifact.program().run_noting([np.array(array) for array in inputs], noted, deciding))
    found.makers = [memory.makers((address_of(array), array.nbytes)) for array in found.results]
    return found if kept <= most_bytes else None


class _Memory:
    """Who has written where: spans of bytes, each an address and a size, and the runs that made what is there."""

    def __init__(self) -> None:
        self._written: list[tuple[int, int, _Runs]] = []

    def write(self, span: tuple[int, int], makers: _Runs) -> None:
        start, end = span[0], sum(span)
        kept: list[tuple[int, int, _Runs]] = []
        for first, last, before in self._written:
            # What is left on both sides of what is written over.
            kept += [(a, b, before) for a, b in ((first, min(last, start)), (max(first, end), last)) if a < b]
        self._written = [*kept, (start, end, makers)]

    def makers(self, span: tuple[int, int]) -> _Runs:
        start, end = span[0], sum(span)
        return _NONE.union(*(makers for first, last, makers in self._written if first < end and start < last))

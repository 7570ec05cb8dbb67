"""A compiled program's run, launch by launch: what each kernel gave, and from which other kernels it had what it read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from ctypes import string_at
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from dlc.arrays import address_of
from dlc.dialects.dl.base import Array
from dlc.instrument.capture import Made
from dlc.instrument.culprit import Counterparts
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.program import Address
from dlc.runtime.load import CompiledProgram
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.program import Launcher, OpenCLProgram
from dlc.runtime.program.execute import Held, at
from dlc.runtime.program.host_program import NUMBER_BYTES, Decide, Launch

# The numbers of runs.
_Runs = frozenset[int]
_NONE: _Runs = frozenset()
# Bytes: where they begin, and how many there are. Buffers of a device lie one behind the other, so far apart.
Span: TypeAlias = tuple[int, int]
_BUFFER_BITS = 48


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


def launches_of(artifact: CompiledProgram, inputs: Sequence[Array], most_bytes: int) -> Launches | None:
    """What a compiled program does with inputs; None if it does not say what its kernels give, or that is too much to keep."""
    if not all(kernel.results for kernel in artifact.kernels):
        return None
    notes = _Notes(artifact, most_bytes)
    # A program may write over what it is given.
    arrays = [np.array(array) for array in inputs]
    of = _on_device(artifact, arrays, notes) if isinstance(artifact, DeviceArtifact) else _on_cpu(artifact, arrays, notes)
    for array, span in of:
        notes.found.results.append(array)
        notes.found.makers.append(notes.memory.makers(span))
    return notes.found if notes.kept <= most_bytes else None


def _on_cpu(artifact: Artifact, inputs: Sequence[Array], notes: _Notes) -> list[tuple[Array, Span]]:
    """The results of a call, and where they are."""

    def noted(launch: Launch, address: Address) -> None:
        spans = [(address(place), size) for place, size in zip(launch.arguments, launch.sizes, strict=True)]
        notes.launch(launch, spans, lambda k: string_at(*spans[k]))

    def deciding(decide: Decide, address: Address) -> None:
        notes.read((address(decide.place), NUMBER_BYTES))

    results = artifact.program().run_noting(inputs, noted, deciding)
    return [(array, (address_of(array), array.nbytes)) for array in results]


def _on_device(artifact: DeviceArtifact, inputs: Sequence[Array], notes: _Notes) -> list[tuple[Array, Span]]:
    program = artifact.program
    # The arena is as large as the call takes then, so that it does not begin again.
    program.run(inputs)
    noting = _Noting(notes)
    results = program.run_by(inputs, noting)
    return [(np.asarray(result), noting.span((result.buffer, 0), result.nbytes)) for result in results]


class _Noting(Launcher):
    """Carries out a call on a device, and notes what is launched, and what the program reads to go on."""

    def __init__(self, notes: _Notes) -> None:
        self._notes = notes
        self._buffers: list[Any] = []

    def span(self, held: Held, size: int) -> Span:
        """Where bytes of a buffer are, among those of all."""
        buffer, offset = held
        if buffer not in self._buffers:
            self._buffers.append(buffer)
        return (self._buffers.index(buffer) << _BUFFER_BITS) + offset, size

    def launch(self, program: OpenCLProgram, launch: Launch, held: list[Held]) -> None:
        program.launch(launch, held)
        places = [at(held, place) for place in launch.arguments]
        spans = [self.span(place, size) for place, size in zip(places, launch.sizes, strict=True)]
        self._notes.launch(launch, spans, lambda k: program.read(places[k], launch.sizes[k]))

    def read(self, program: OpenCLProgram, place: Held, count: int) -> bytes:
        self._notes.read(self.span(place, count))
        return program.read(place, count)


class _Notes:
    """What is noted of a call."""

    def __init__(self, artifact: CompiledProgram, most_bytes: int) -> None:
        self.found, self.memory, self.kept = Launches(), _Memory(), 0
        self._kernels = {kernel.name: kernel for kernel in artifact.kernels}
        self._most_bytes, self._decided = most_bytes, _NONE

    def read(self, span: Span) -> None:
        """The program has read what decides how it goes on."""
        self._decided |= self.memory.makers(span)

    def launch(self, launch: Launch, spans: Sequence[Span], content: Callable[[int], bytes]) -> None:
        """A launch has run, on arguments at these places and with this content."""
        if launch.kernel is None:
            self.memory.write(spans[0], self.memory.makers(spans[1]))
            return
        kernel = self._kernels[launch.kernel]
        first = len(spans) - len(kernel.results)
        self.kept += sum(size for _, size in spans[first:])
        # What follows a decision is as large as it says.
        run = self._decided.union(*map(self.memory.makers, spans[:first]))
        given = [np.frombuffer(content(first + k), dtype) for k, dtype in enumerate(kernel.results)]
        for span in spans[first:]:
            self.memory.write(span, frozenset([len(self.found.runs)]))
        outputs = tuple(given) if self.kept <= self._most_bytes else ()
        self.found.runs.append(Run(kernel.name, kernel.origins, outputs, run))


class _Memory:
    """Who has written where: spans of bytes, and the runs that made what is there."""

    def __init__(self) -> None:
        self._written: list[tuple[int, int, _Runs]] = []

    def write(self, span: Span, makers: _Runs) -> None:
        start, end = span[0], sum(span)
        kept: list[tuple[int, int, _Runs]] = []
        for first, last, before in self._written:
            # What is left on both sides of what is written over.
            kept += [(a, b, before) for a, b in ((first, min(last, start)), (max(first, end), last)) if a < b]
        self._written = [*kept, (start, end, makers)]

    def makers(self, span: Span) -> _Runs:
        start, end = span[0], sum(span)
        return _NONE.union(*(makers for first, last, makers in self._written if first < end and start < last))

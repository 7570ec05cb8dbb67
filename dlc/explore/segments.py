"""What a page shows of a program that runs in segments: each a program of its own, and what the host computes between them.

A segment is compiled where the program is, for the sizes that data gave it in a call: so the program is run with segments that
note what they are called with, once so that all of them are compiled, and once by the clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.backends.base import Backend
from dlc.compiler import Program
from dlc.compiler.segments import Hosted, Part, Segments, split
from dlc.dialects.host import entry_of
from dlc.errors import UnsupportedError
from dlc.explore.collecting import Inputs
from dlc.explore.data import Exploration, Parts, Turn
from dlc.explore.seen import Seen, backend_compiling
from dlc.explore.types import type_text
from dlc.instrument.provenance import origins
from dlc.instrument.recording import Listing
from dlc.instrument.report import Doing, Progress
from dlc.ir import SSAValue
from dlc.options import Options
from dlc.runtime.model import Model
from dlc.runtime.opencl.array import DeviceArray
from dlc.runtime.steps import Served


def collect_parts(
    program: Program,
    target: str | Backend = "cpu",
    options: Options | None = None,
    *,
    inputs: Inputs | None = None,
    source: Listing | None = None,
    progress: Progress | None = None,
) -> Parts:
    """What compiling `program` makes of its parts, and where the time of a call with `inputs` goes.

    Raises UnsupportedError without inputs, since it is data that decides sizes, and where no part ran; and what compiling and
    running raise.
    """
    if inputs is None:
        raise UnsupportedError(
            f"{program.name}: it is compiled in parts, whose sizes data decides; give inputs to see it for them"
        )
    options = options or Options()
    backend = backend_compiling(program, target, options)
    arrays, watched = inputs(program) if callable(inputs) else inputs, _Watched()

    def compiled(part: Program, own: Options) -> Served | None:
        return watched.served(Seen.of(part, backend, own, progress))

    numbered = _numbered(split(program), iter(range(1, _MOST)))
    steps = numbered.linked(compiled, options)
    steps.run(arrays)
    watched.calls.clear()
    if progress is not None:
        progress(Doing("measuring"))
    began = perf_counter()
    steps.run(arrays)
    seconds = perf_counter() - began
    if progress is not None:
        progress(Doing("measuring"))
    if not watched.calls:
        raise UnsupportedError(f"{program.name}: a page shows kernels, and there are none: the host computes all of it")
    ran = sorted(watched.calls, key=lambda name: int(name.removeprefix(_PART)))
    shown = [watched.calls[name].exploration(source) for name in ran]

    def turn(name: str, places: Iterable[str], depth: int, results: Sequence[SSAValue]) -> Turn:
        made, calls = tuple(type_text(value.type) for value in results), watched.calls.get(name)
        known = Turn(name, tuple(dict.fromkeys(places)), depth, made)
        return known if calls is None else replace(known, runs=calls.runs, seconds=calls.seconds, page=ran.index(name))

    return Parts(program.name, str(backend), tuple(_turns(numbered, turn, 0)), tuple(shown), seconds)


# What parts are called, with a number behind it, of which no program has so many.
_PART, _MOST = "part ", 1 << 30
_Tell = Callable[[str, Iterable[str], int, Sequence[SSAValue]], Turn]


@dataclass
class _Calls:
    """The calls of a part: the one that took longest, by whom it was compiled, and what it was called with."""

    runs: int = 0
    seconds: float = 0.0
    longest: float = -1.0
    seen: Seen | None = None
    inputs: Sequence[NDArray[Any]] = ()

    def exploration(self, source: Listing | None) -> Exploration:
        assert self.seen is not None, "what is known was called"
        return self.seen.exploration(self.inputs, self.seen.program.sizes_of(self.inputs), source)


@dataclass
class _Watched:
    """The calls of parts, by the names of these."""

    calls: dict[str, _Calls] = field(default_factory=lambda: defaultdict(_Calls))

    def served(self, seen: Seen) -> Served | None:
        """The model of a part, which notes its calls."""
        if seen.served is None:
            return None
        model = seen.served.model

        def run(arrays: Sequence[Any]) -> Sequence[Any]:
            # A program may write over what it is given.
            given: list[Any] = [a if isinstance(a, DeviceArray) else np.array(a) for a in arrays]
            began = perf_counter()
            results = model.run_unchecked(arrays)
            for result in results:
                if isinstance(result, DeviceArray):
                    result.session.queue.finish()
            took, calls = perf_counter() - began, self.calls[seen.program.name]
            calls.runs += 1
            calls.seconds += took
            if took > calls.longest:
                calls.longest, calls.seen, calls.inputs = took, seen, given
            return results

        device = seen.backend.takes_device_arrays
        return Served(Model(model.inputs, model.outputs, run, model.name, takes_device_arrays=device), seen.served.domain)


def _numbered(segments: Segments, numbers: Iterator[int]) -> Segments:
    """The same parts, called by their numbers."""

    def named(step: Any) -> Any:
        if isinstance(step, Part):
            return replace(step, program=replace(step.program, name=f"{_PART}{next(numbers)}"))
        if isinstance(step, Hosted):
            return replace(step, bodies={b: (_numbered(inner, numbers), values) for b, (inner, values) in step.bodies.items()})
        return step

    return replace(segments, steps=tuple(map(named, segments.steps)))


def _turns(segments: Segments, turn: _Tell, depth: int) -> Iterator[Turn]:
    """What comes one after the other, with what is inside of loops and branches behind these."""
    for step in segments.steps:
        if isinstance(step, Part):
            ops = entry_of(step.program.module).body.block.ops
            yield turn(step.program.name, (name for op in ops for name in origins(op.location)), depth, step.outputs)
            continue
        yield turn(step.op.name.partition(".")[2], origins(step.op.location), depth, step.outputs)
        if isinstance(step, Hosted):
            for inner, _ in step.bodies.values():
                yield from _turns(inner, turn, depth + 1)

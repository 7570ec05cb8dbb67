"""Everything that a page shows of a program: compiled once with a recorder, run a few times, and put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.backends.base import Backend
from dlc.backends.reference import sizes_decided
from dlc.compiler import Program
from dlc.compiler.open_sizes import within
from dlc.errors import UnsupportedError
from dlc.explore.data import Exploration
from dlc.explore.seen import Seen, backend_compiling
from dlc.instrument.recording import Listing
from dlc.instrument.report import Doing, Progress
from dlc.options import Options
from dlc.runtime.program.open_program import OutsideError

# What a program is run on: arrays, or what gives them for the sizes that one compilation serves.
Inputs: TypeAlias = "Sequence[NDArray[Any]] | Callable[[Program], Sequence[NDArray[Any]]]"


def collect(
    program: Program,
    target: str | Backend = "cpu",
    options: Options | None = None,
    *,
    inputs: Inputs | None = None,
    source: Listing | None = None,
    progress: Progress | None = None,
) -> Exploration:
    """What compiling `program` makes of it, and on `inputs`, where its time goes; `source` is what the user wrote.

    Where sizes come with a call, they are those of `inputs`, or else the ones that plans are made for; a program that is not
    compiled for these sizes with others, or for those that the data of `inputs` decides, is compiled for them alone.

    Raises UnsupportedError for a program that is compiled for the inputs of each call, without such, and what compiling raises.
    """
    options = options or Options()
    seen = Seen.of(program, backend_compiling(program, target, options), options, progress)
    if seen.served is None and inputs is None:
        raise UnsupportedError(
            f"{program.name}: it is compiled when it is called: {seen.report.each_size}; "
            "give the shapes of its inputs to see it for them, or inputs, where their data decides sizes"
        )
    narrowed = within(program, seen.served.domain) if seen.served is not None else program
    arrays = inputs(narrowed) if callable(inputs) else inputs
    if arrays is not None and not _serves(seen, program.sizes_of(arrays)):
        return collect(_known(program, arrays), target, options, inputs=arrays, source=source, progress=progress)
    if arrays is not None and progress is not None:
        progress(Doing("measuring"))
    try:
        return seen.exploration(arrays, narrowed.planned_sizes if arrays is None else program.sizes_of(arrays), source)
    except OutsideError:
        assert arrays is not None, "data decides a size that it is not compiled for"
        known = _known(program.for_inputs(arrays), arrays)
        return collect(known, target, options, inputs=arrays, source=source, progress=progress)


def _known(program: Program, arrays: Sequence[NDArray[Any]]) -> Program:
    """The program for the sizes of inputs, or where these are known, for those that their data decides."""
    return program.known(program.sizes_of(arrays) or sizes_decided(program.module, arrays, program.weights))


def _serves(seen: Seen, sizes: Mapping[str, int]) -> bool:
    """Whether what was compiled serves these sizes of inputs; of what data decides nobody knows yet."""
    if seen.served is None:
        return False
    domain = seen.served.domain
    return domain.without(domain.symbols.difference(sizes)).holds(sizes)

"""Everything that a page shows of a program: compiled once with a recorder, run a few times, and put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.backends.base import Backend
from dlc.compiler import Program
from dlc.compiler.open_sizes import within
from dlc.compiler.segments import split
from dlc.dims import is_static
from dlc.errors import UnsupportedError
from dlc.explore.data import Exploration
from dlc.explore.seen import Seen, backend_compiling
from dlc.instrument.recording import Listing
from dlc.instrument.report import Doing, Progress
from dlc.options import Options
from dlc.runtime.open_program import OutsideError

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
) -> Exploration | None:
    """What compiling `program` makes of it, and on `inputs`, where its time goes; `source` is what the user wrote.

    Where sizes come with a call, they are those of `inputs`, or else the ones that plans are made for; a program that is not
    compiled for these sizes with others is compiled for them alone. None for one that is compiled in parts.

    Raises UnsupportedError for a program that is compiled for the inputs of each call, without such, and what compiling raises.
    """
    options = options or Options()
    seen = Seen.of(program, backend_compiling(program, target, options), options, progress)
    is_known = all(is_static(info.shape) for info in program.inputs)
    if seen.served is None and (is_known or (inputs is None and split(program).are_cut)):
        return None
    if seen.served is None and inputs is None:
        raise UnsupportedError(
            f"{program.name}: it is compiled when it is called: {seen.report.each_size}; "
            "give the shapes of its inputs to see it for them"
        )
    narrowed = within(program, seen.served.domain) if seen.served is not None else program
    arrays = inputs(narrowed) if callable(inputs) else inputs
    if arrays is not None and not _serves(seen, program.sizes_of(arrays)):
        known = program.known(program.sizes_of(arrays))
        return collect(known, target, options, inputs=arrays, source=source, progress=progress)
    if arrays is not None and progress is not None:
        progress(Doing("measuring"))
    try:
        return seen.exploration(arrays, narrowed.planned_sizes if arrays is None else program.sizes_of(arrays), source)
    except OutsideError:
        # Data decides a size that it is not compiled for.
        return None


def _serves(seen: Seen, sizes: Mapping[str, int]) -> bool:
    """Whether what was compiled serves these sizes of inputs; of what data decides nobody knows yet."""
    if seen.served is None:
        return False
    domain = seen.served.domain
    return domain.without(domain.symbols.difference(sizes)).holds(sizes)

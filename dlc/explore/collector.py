"""Compile a program with a recorder, run it a few times, and collect the content of a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.backends.base import Backend
from dlc.backends.reference import evaluate_data_dependent_sizes
from dlc.compiler import Program
from dlc.compiler.size_domains import restrict_to_domain
from dlc.errors import UnsupportedError
from dlc.explore.data import Exploration
from dlc.explore.recorded_compilation import RecordedCompilation, backend_compiling
from dlc.instrument.compilation_record import Listing
from dlc.instrument.report import Progress, ProgressEvent
from dlc.options import Options
from dlc.runtime.program.size_binding import OutOfDomainError

# The inputs of a run: arrays, or a function that creates them for the part of the program that is compiled.
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
    """Compile `program` and return its exploration, with times if `inputs` are given.

    `source` is the listing of the user's source. Symbolic dimensions have the sizes of `inputs`, or the sizes used for tile
    planning. If the compiled program is not valid for the sizes of `inputs`, or for the data-dependent sizes that follow from
    them, the program is specialized for these sizes.

    Raises UnsupportedError for a program that is specialized at run time if there are no `inputs`, and any compilation error.
    """
    options = options or Options()
    compilation = RecordedCompilation.of(program, backend_compiling(program, target, options), options, progress)
    if compilation.specialization is None and inputs is None:
        raise UnsupportedError(
            f"{program.name}: it is specialized at run time: {compilation.report.specialization_reason}; "
            "give the input shapes, or inputs if sizes are data-dependent, to explore one specialization"
        )
    program_in_domain = (
        restrict_to_domain(program, compilation.specialization.domain) if compilation.specialization is not None else program
    )
    arrays = inputs(program_in_domain) if callable(inputs) else inputs
    if arrays is not None and not _covers(compilation, program.sizes_of(arrays)):
        return collect(_with_static_sizes(program, arrays), target, options, inputs=arrays, source=source, progress=progress)
    if arrays is not None and progress is not None:
        progress(ProgressEvent("measuring"))
    try:
        return compilation.exploration(
            arrays, program_in_domain.representative_sizes if arrays is None else program.sizes_of(arrays), source
        )
    except OutOfDomainError:
        assert arrays is not None, "a data-dependent size is outside the compiled range"
        static_program = _with_static_sizes(program.for_inputs(arrays), arrays)
        return collect(static_program, target, options, inputs=arrays, source=source, progress=progress)


def _with_static_sizes(program: Program, arrays: Sequence[NDArray[Any]]) -> Program:
    """Specialize the program for the sizes of its inputs, or if these are static, for the data-dependent sizes."""
    return program.specialize(
        program.sizes_of(arrays) or evaluate_data_dependent_sizes(program.module, arrays, program.weights)
    )


def _covers(compilation: RecordedCompilation, sizes: Mapping[str, int]) -> bool:
    """Return whether the compiled program is valid for these input sizes. Data-dependent sizes are not computed yet."""
    if compilation.specialization is None:
        return False
    domain = compilation.specialization.domain
    return domain.may_hold(sizes)

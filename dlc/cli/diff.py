"""`dlc diff`: find the first value in which two programs differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from dlc.caching.model_cache import MLIR_SUFFIX
from dlc.cli.common import (
    ARTIFACT_SUFFIX,
    MODEL,
    examples,
    fail,
    json_number,
    json_option,
    progress_display,
    reports_errors,
    target_option,
    tolerance_option,
)
from dlc.cli.compile_options import compile_options
from dlc.cli.console import out
from dlc.cli.input_arrays import make_inputs, read_array
from dlc.cli.run import input_option, seed_option, with_bound_sizes
from dlc.cli.shape_options import Shapes, shape_option, value_option
from dlc.debug.difference import ComparedProgram, ProgramDifference, difference, for_inputs
from dlc.instrument.report import ProgressEvent
from dlc.models.model_files import compile_file, import_program
from dlc.options import Options
from dlc.runtime.load import load
from dlc.shapes.shape_specs import bind_symbolic_sizes


@click.command("diff", epilog=examples("dlc diff ir/stage-dl.mlir ir/stage-loops.mlir --input x=x.npy"))
@click.argument("first", metavar="A", type=MODEL)
@click.argument("second", metavar="B", type=MODEL, required=False)
@input_option
@shape_option
@value_option
@seed_option
@tolerance_option
@target_option
@compile_options("replaced_kernels", "plan")
@json_option
@reports_errors
def diff_command(
    first: Path,
    second: Path | None,
    inputs: tuple[str, ...],
    shapes: Shapes,
    values: dict[str, Path],
    seed: int,
    tolerance: float | None,
    target: str,
    as_json: bool,
    compile_settings: dict[str, Any],
) -> None:
    """Finds the first value in which two programs differ.

    A and B run on the same inputs; the command reports the first value of B that A does not compute, and the op that produces
    it. A program is an ONNX or TFLite file, a dumped module of any stage (.mlir, possibly edited), a PyTorch program saved with
    torch.export.save (.pt2), or a compiled model (.dlc). The values of a compiled model are the results of its kernels. The
    exit status is 1 if the programs differ.

    With --replace-kernel or --plan, A is compiled without and with them, and the two are compared.
    """
    is_edited = any(compile_settings.values())
    if is_edited == (second is not None):
        raise click.UsageError("give a second program B, or --replace-kernel or --plan to compare A with")
    with progress_display() as progress:
        if progress is not None:
            progress(ProgressEvent("evaluating"))
        if second is None:
            edits = Options.of(**compile_settings)
            programs: list[ComparedProgram] = [compile_file(first, target, shapes, options) for options in (Options(), edits)]
            second = first.with_stem(f"{first.stem} with edits")
        else:
            programs = [load_comparable(path, shapes, values) for path in (first, second)]
        input_infos = (
            programs[0].inputs if first.suffix != ARTIFACT_SUFFIX else with_bound_sizes(first, programs[0].inputs, shapes)
        )
        comparison = compare_programs(
            programs[0], programs[1], make_inputs(input_infos, inputs, seed, programs[0].defaults), tolerance
        )
    if as_json:
        outputs = [{**asdict(output), "deviation": json_number(output.deviation)} for output in comparison.outputs]
        click.echo(json.dumps({**asdict(comparison), "outputs": outputs}, indent=1))
    else:
        _print(first, second, comparison)
    if not comparison.agrees:
        if as_json:
            raise click.exceptions.Exit(1)
        fail(describe_difference(str(second), str(first), comparison))


def load_comparable(path: Path, shapes: Shapes, values: dict[str, Path]) -> ComparedProgram:
    """Load a program to compare from a file."""
    if path.suffix == ARTIFACT_SUFFIX:
        return load(path)
    if path.suffix != MLIR_SUFFIX:
        return import_program(path, shapes, {name: read_array(file) for name, file in values.items()}, None)
    # --shape sets only the symbolic dimensions that a dumped module still has.
    program = import_program(path, None, None, None)
    return program.with_sizes(bind_symbolic_sizes(program.inputs, shapes))


def compare_programs(
    first: ComparedProgram, second: ComparedProgram, named_arrays: Mapping[str, NDArray[Any]], tolerance: float | None
) -> ProgramDifference:
    """Compare the values of two programs on the same inputs, which have the names of the first program's."""
    arrays = [named_arrays[info.name] if info.name in named_arrays else first.defaults[info.name] for info in first.inputs]
    return difference(for_inputs(first, arrays), for_inputs(second, arrays), arrays, tolerance)


def describe_difference(name: str, other_name: str, comparison: ProgramDifference) -> str:
    """Return a message that describes the difference."""
    lines = [
        f"output {o.name} of {name} {_deviation_text(o.deviation, o.tolerance)}" for o in comparison.outputs if not o.agrees
    ]
    if comparison.first is None:
        return "\n".join([*lines, "there are no intermediate values to compare; compare dumps of both (--dump-ir)"])
    return "\n".join([*lines, f"the first value that {other_name} does not compute is the result of", f"  {comparison.first}"])


def _deviation_text(deviation: float, tolerance: float) -> str:
    if deviation == float("inf"):
        return "differs in shape, NaN or infinities"
    return f"is off by {deviation:.1e} of its largest magnitude; the tolerance is {tolerance:.0e}"


def _print(first: Path, second: Path, comparison: ProgramDifference) -> None:
    table = Table("output", "deviation", "allowed", "", title=escape(f"{second.name} compared with {first.name}"))
    for column in table.columns[1:3]:
        column.justify = "right"
    for o in comparison.outputs:
        table.add_row(escape(o.name), f"{o.deviation:.1e}", f"{o.tolerance:.0e}", "agrees" if o.agrees else "differs")
    out.print(table)

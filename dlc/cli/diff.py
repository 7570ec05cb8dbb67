"""`dlc diff`: where two programs part that should compute the same."""

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

from dlc.caching.model_cache import DUMPED
from dlc.cli.given import Shapes, shape_option, value_option
from dlc.cli.run import input_option, seed_option, sized
from dlc.cli.shared import (
    ARTIFACT_SUFFIX,
    MODEL,
    fail,
    json_number,
    json_option,
    make_inputs,
    out,
    read_array,
    reports_errors,
    shown_progress,
    tolerance_option,
)
from dlc.debug.difference import Difference, Side, difference, for_inputs
from dlc.dims import is_static
from dlc.given_shapes import sizes_given
from dlc.instrument.report import Doing
from dlc.model_files import program_of
from dlc.runtime.load import load


@click.command("diff")
@click.argument("one", metavar="A", type=MODEL)
@click.argument("other", metavar="B", type=MODEL)
@input_option
@shape_option
@value_option
@seed_option
@tolerance_option
@json_option
@reports_errors
def diff_command(
    one: Path,
    other: Path,
    inputs: tuple[str, ...],
    shapes: Shapes,
    values: dict[str, Path],
    seed: int,
    tolerance: float | None,
    as_json: bool,
) -> None:
    """Finds the first value in which two programs differ.

    A and B run on the same inputs; what is told is the first value of B that A has not, and which op makes it. Each is an ONNX
    or TFLite file, a module of a dump (.mlir), edited or not and of any stage, what torch.export.save wrote (.pt2), or a
    compiled model (.dlc), of which the values are those that its kernels give. Ends with 1 where they differ.
    """
    with shown_progress() as progress:
        if progress is not None:
            progress(Doing("evaluating"))
        sides = [side_of(path, shapes, values) for path in (one, other)]
        taken = sides[0].inputs if one.suffix != ARTIFACT_SUFFIX else sized(one, sides[0].inputs, shapes)
        found = compared(sides[0], sides[1], make_inputs(taken, inputs, seed, sides[0].defaults), tolerance)
    if as_json:
        outputs = [{**asdict(output), "deviation": json_number(output.deviation)} for output in found.outputs]
        click.echo(json.dumps({**asdict(found), "outputs": outputs}, indent=1))
    else:
        _print(one, other, found)
    if not found.agrees:
        if as_json:
            raise click.exceptions.Exit(1)
        fail(told(str(other), str(one), found))


def side_of(path: Path, shapes: Shapes, values: dict[str, Path]) -> Side:
    """A program to compare, as a file has it."""
    if path.suffix == ARTIFACT_SUFFIX:
        return load(path)
    if path.suffix != DUMPED:
        return program_of(path, shapes, {name: read_array(file) for name, file in values.items()}, None)
    # A dumped module has its sizes, but for those that it leaves open.
    program = program_of(path, None, None, None)
    open_ = {info.name for info in program.inputs if not is_static(info.shape)}
    return program.with_sizes(sizes_given(program.inputs, {name: shapes[name] for name in open_ & shapes.keys()}))


def compared(one: Side, other: Side, given: Mapping[str, NDArray[Any]], tolerance: float | None) -> Difference:
    """What both make of the same inputs, which are called as those of the first."""
    arrays = [given[info.name] if info.name in given else one.defaults[info.name] for info in one.inputs]
    return difference(for_inputs(one, arrays), for_inputs(other, arrays), arrays, tolerance)


def told(name: str, other: str, found: Difference) -> str:
    """What differs, for a person."""
    lines = [f"output {o.name} of {name} {_off(o.deviation, o.tolerance)}" for o in found.outputs if not o.agrees]
    if found.first is None:
        return "\n".join([*lines, "there are no values in between to look at: take a dump of each (--dump-ir)"])
    return "\n".join([*lines, f"the first value that {other} has not is that of", f"  {found.first}"])


def _off(off: float, allowed: float) -> str:
    if off == float("inf"):
        return "differs in shape, NaN or infinities"
    return f"is off by {off:.1e} of its largest magnitude, where {allowed:.0e} is allowed"


def _print(one: Path, other: Path, found: Difference) -> None:
    table = Table("output", "deviation", "allowed", "", title=escape(f"{other.name} beside {one.name}"))
    for column in table.columns[1:3]:
        column.justify = "right"
    for o in found.outputs:
        table.add_row(escape(o.name), f"{o.deviation:.1e}", f"{o.tolerance:.0e}", "agrees" if o.agrees else "differs")
    out.print(table)

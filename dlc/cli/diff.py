"""`dlc diff`: where two programs part that should compute the same."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from dlc.api import program_of
from dlc.caching.model_cache import DUMPED
from dlc.cli.run import input_option, seed_option
from dlc.cli.shared import (
    ARTIFACT_SUFFIX,
    MODEL,
    Shapes,
    fail,
    json_number,
    json_option,
    make_inputs,
    out,
    read_array,
    reports_errors,
    shape_option,
    shown_progress,
    value_option,
)
from dlc.debug.difference import Difference, Side, difference, for_inputs
from dlc.instrument.report import Doing
from dlc.runtime.load import load
from dlc.runtime.model import require_fitting


@click.command("diff")
@click.argument("one", metavar="A", type=MODEL)
@click.argument("other", metavar="B", type=MODEL)
@input_option
@shape_option
@value_option
@seed_option
@click.option("--tolerance", type=float, help="Largest difference, of the largest magnitude; by default that of the dtypes.")
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
    compiled model (.dlc), whose outputs alone are compared. Ends with 1 where they differ.
    """
    with shown_progress() as progress:
        if progress is not None:
            progress(Doing("evaluating"))
        sides = [side_of(path, shapes, values) for path in (one, other)]
        found = compared(sides[0], sides[1], inputs, seed, tolerance)
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
    # A dumped module has its sizes.
    known = {name: read_array(file) for name, file in values.items()}
    return program_of(path, None, None, None) if path.suffix == DUMPED else program_of(path, shapes, known, None)


def compared(one: Side, other: Side, inputs: tuple[str, ...], seed: int, tolerance: float | None) -> Difference:
    """What both make of the inputs that options say, as the first takes them."""
    given = make_inputs(one.inputs, inputs, seed, one.defaults)
    arrays = [given[info.name] if info.name in given else one.defaults[info.name] for info in one.inputs]
    sides = [for_inputs(side, arrays) for side in (one, other)]
    for side in sides:
        require_fitting(side.name, side.inputs, arrays)
    return difference(sides[0], sides[1], arrays, tolerance)


def told(name: str, other: str, found: Difference) -> str:
    """What differs, for a person."""
    lines = [f"output {o.name} of {name} {_off(o.deviation, o.tolerance)}" for o in found.outputs if not o.agrees]
    if found.first is None:
        return "\n".join([*lines, "what is compiled or planned has no values in between; take a dump of each (--dump-ir)"])
    return "\n".join([*lines, f"the first value that {other} has not is that of", f"  {found.first}"])


def _off(off: float, allowed: float) -> str:
    if off == float("inf"):
        return "differs in NaN or infinities"
    return f"is off by {off:.1e} of its largest magnitude, where {allowed:.0e} is allowed"


def _print(one: Path, other: Path, found: Difference) -> None:
    table = Table("output", "deviation", "allowed", "", title=escape(f"{other.name} beside {one.name}"))
    for column in table.columns[1:3]:
        column.justify = "right"
    for o in found.outputs:
        table.add_row(escape(o.name), f"{o.deviation:.1e}", f"{o.tolerance:.0e}", "agrees" if o.agrees else "differs")
    out.print(table)

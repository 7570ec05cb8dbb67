"""`dlc bisect`: the first pass that changes a model's numbers."""

from __future__ import annotations

from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from dlc.cli.run import input_option, seed_option
from dlc.cli.shared import (
    fail,
    make_inputs,
    model_argument,
    out,
    reports_errors,
    shape_option,
    shown_progress,
    target_option,
)
from dlc.compiler import load_program
from dlc.debug.bisect import bisect
from dlc.options import Options


@click.command("bisect")
@model_argument
@input_option
@target_option
@shape_option
@seed_option
@click.option("--tolerance", type=float, default=1e-4, show_default=True, help="Largest difference, of the largest magnitude.")
@click.option("--pipeline", metavar="PASSES", help='Run these passes, such as "a,b{k=1}", not the target\'s.')
@reports_errors
def bisect_command(
    model: Path,
    inputs: tuple[str, ...],
    target: str,
    shapes: dict[str, tuple[int, ...]],
    seed: int,
    tolerance: float,
    pipeline: str | None,
) -> None:
    """Evaluates MODEL after each pass and names the first one after which the outputs differ from the imported model's."""
    with shown_progress() as progress:
        program = load_program(model, shapes)
        arrays = list(make_inputs(program.inputs, inputs, seed).values())
        steps = bisect(program, arrays, target, tolerance=tolerance, options=Options.of(pipeline=pipeline), progress=progress)
    table = Table("stage", "pass", "output", "deviation")
    table.columns[3].justify = "right"
    for step in steps:
        table.add_row(step.stage, escape(step.spec), escape(step.output), f"{step.deviation:.1e}")
    out.print(table)
    if steps and steps[-1].deviation > tolerance:
        last = steps[-1]
        fail(f"{last.spec} ({last.stage}) changes output {last.output} by {last.deviation:.1e} of its largest magnitude")
    out.print(f"{model}: every pass keeps the outputs within {tolerance:.0e}")

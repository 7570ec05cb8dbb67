"""`dlc reduce`: the smallest part of a program that still goes wrong."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote

import click

from dlc.cli.given import Shapes, shape_option, value_option
from dlc.cli.run import input_option, seed_option
from dlc.cli.shared import (
    Numbers,
    json_option,
    make_inputs,
    model_argument,
    out,
    read_array,
    reports_errors,
    shown_progress,
    target_option,
    tolerance_option,
)
from dlc.debug.cut_out import ops_of
from dlc.debug.outcome import NUMBERS, outcome_of_command, outcome_on
from dlc.debug.reduce import reduce
from dlc.instrument.evidence import save_program
from dlc.model_files import program_of
from dlc.options import Options
from dlc.runtime.models.model import require_fitting


@click.command("reduce")
@model_argument
@input_option
@target_option
@shape_option
@value_option
@seed_option
@click.option(
    "--check",
    "command",
    metavar="COMMAND",
    help="What fails: a shell command, with {} for the file; by default, that compiling and running goes as it should.",
)
@click.option("--pipeline", metavar="PASSES", help='Run these passes, such as "a,b{k=1}", not the target\'s.')
@tolerance_option
@click.option("--seconds", type=Numbers(0), default=120.0, show_default=True, help="How long to look.")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), default="reduced", show_default=True)
@json_option
@reports_errors
def reduce_command(
    model: Path,
    inputs: tuple[str, ...],
    target: str,
    shapes: Shapes,
    values: dict[str, Path],
    seed: int,
    command: str | None,
    pipeline: str | None,
    tolerance: float | None,
    seconds: float,
    output: Path,
    as_json: bool,
) -> None:
    """Writes the smallest part of a model that still goes wrong.

    MODEL is what `dlc run` takes, but not compiled yet; wrong is an error or a crash, results other than the evaluator's, or a
    failing command.
    """
    if command is not None:
        outcome, fine = outcome_of_command(command), "the command ends with status 0"
    else:
        outcome = outcome_on(target, Options.of(pipeline=pipeline, cache=False), tolerance)
        fine = "it compiles, and computes what the evaluator does"
    with shown_progress() as progress:
        program = program_of(model, shapes, {name: read_array(file) for name, file in values.items()}, None)
        arrays = make_inputs(program.inputs, inputs, seed)
        require_fitting(program.name, program.inputs, [arrays[info.name] for info in program.inputs])
        program = program.for_inputs(list(arrays.values()))
        case, wrong = reduce(program, list(arrays.values()), outcome, fine=fine, seconds=seconds, progress=progress)
    file = output / "reduced.mlir"
    save_program(file, case.program.module, case.arrays, case.program.weights, case.program.remaining)
    before, after = len(ops_of(program)), len(ops_of(case.program))
    chosen = f" --target {quote(target)}" * (target != "cpu") + f" --pipeline '{pipeline}'" * (pipeline is not None)
    if command is not None:
        line = command.replace("{}", quote(str(file)))
    else:
        line = f"dlc {'bisect' if wrong == NUMBERS else 'run'} {quote(str(file))} --input {quote(str(output))}{chosen}"
    if as_json:
        click.echo(json.dumps({"ops": before, "left": after, "wrong": wrong, "file": str(file), "reproduce": line}, indent=2))
        return
    out.print(f"{before} ops became {after}: {wrong}", markup=False)
    out.print(f"To reproduce it: {line}", markup=False)

"""`dlc reduce`: reduce a failing model to a minimal failing program."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import Any

import click

from dlc.cli.common import (
    NonNanFloatRange,
    examples,
    json_option,
    model_argument,
    progress_display,
    reports_errors,
    target_option,
    tolerance_option,
)
from dlc.cli.compile_options import NUMERIC_OPTIONS, command_line, compile_options
from dlc.cli.console import out
from dlc.cli.input_arrays import make_inputs, read_array
from dlc.cli.run import input_option, seed_option
from dlc.cli.shape_options import Shapes, shape_option, value_option
from dlc.debug.outcome import WRONG_RESULTS, outcome_of_command, outcome_on
from dlc.debug.reduce import reduce
from dlc.debug.subprogram import ops_of
from dlc.instrument.reproducer import save_program, shell_command
from dlc.models.model_files import import_program
from dlc.options import Options


@click.command(
    "reduce",
    epilog=examples(
        "dlc reduce model.onnx --input x=x.npy -o reduced",
        "dlc reduce model.onnx --check './fails.sh {}'          any command that fails",
    ),
)
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
    help="The failing shell command, with {} for the file; default: compile, run, and compare with the reference evaluator.",
)
@tolerance_option
@click.option("--seconds", type=NonNanFloatRange(0), default=120.0, show_default=True, help="Time limit in seconds.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default="reduced",
    show_default=True,
    help="Write the reduced program and its inputs to this folder.",
)
@compile_options("pipeline", *NUMERIC_OPTIONS)
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
    tolerance: float | None,
    seconds: float,
    output: Path,
    as_json: bool,
    compile_settings: dict[str, Any],
) -> None:
    """Reduces a failing model to a minimal failing program.

    A failure is an error, a crash, results that differ from the reference evaluator, or a failing command (--check). MODEL
    is any model that `dlc run` takes, except a compiled one.
    """
    if command is not None:
        outcome, success = outcome_of_command(command), "the command exits with status 0"
    else:
        outcome = outcome_on(target, Options.of(**compile_settings, cache=False), tolerance)
        success = "it compiles and agrees with the reference evaluator"
    with progress_display() as progress:
        program = import_program(model, shapes, {name: read_array(file) for name, file in values.items()}, None)
        arrays = make_inputs(program.inputs, inputs, seed)
        program = program.for_inputs(list(arrays.values()))
        case, failure = reduce(program, list(arrays.values()), outcome, success=success, seconds=seconds, progress=progress)
    file = output / "reduced.mlir"
    save_program(file, case.program.module, case.arrays, case.program.weights, case.program.remaining_passes)
    num_ops_before, num_ops_after = len(ops_of(program)), len(ops_of(case.program))
    if command is not None:
        reproduction = command.replace("{}", quote(str(file)))
    else:
        is_wrong = failure == WRONG_RESULTS
        settings = {**compile_settings, "target": target, "tolerance": tolerance if is_wrong else None}
        reproduction = shell_command(
            "bisect" if is_wrong else "run", str(file), "--input", str(output), *command_line(settings)
        )
    if as_json:
        click.echo(
            json.dumps(
                {"ops": num_ops_before, "left": num_ops_after, "wrong": failure, "file": str(file), "reproduce": reproduction},
                indent=2,
            )
        )
        return
    out.print(f"Reduced from {num_ops_before} to {num_ops_after} ops: {failure}", markup=False)
    out.print(f"To reproduce: {reproduction}", markup=False)

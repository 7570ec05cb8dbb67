"""`dlc bisect`: find the import step, pass, kernel or runtime that makes a model's results wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from dlc.caching.model_cache import MLIR_SUFFIX, TFLITE_SUFFIX, TORCH_EXPORT_SUFFIX
from dlc.cli.common import (
    ARTIFACT_SUFFIX,
    examples,
    fail,
    json_number,
    json_option,
    model_argument,
    progress_display,
    reports_errors,
    target_option,
    tolerance_option,
)
from dlc.cli.compile_options import NUMERIC_OPTIONS, compile_options
from dlc.cli.console import out
from dlc.cli.diff import describe_difference, load_comparable
from dlc.cli.input_arrays import make_inputs, read_array, read_arrays
from dlc.cli.run import input_option, seed_option
from dlc.cli.shape_options import Shapes, shape_option, value_option
from dlc.compiler import Program
from dlc.debug.bisect import Verdict, bisect, compare_recorded
from dlc.debug.difference import ComparedProgram, difference, for_inputs
from dlc.debug.import_check import first_wrong_node
from dlc.errors import DlcError
from dlc.instrument.report import Progress
from dlc.models.model_files import import_program
from dlc.options import Options

Arrays = dict[str, NDArray[Any]]


@click.command(
    "bisect",
    epilog=examples(
        "dlc bisect model.onnx --input x=x.npy",
        "dlc bisect model.onnx --input x=x.npy --against expected.npz",
    ),
)
@model_argument
@input_option
@target_option
@shape_option
@value_option
@seed_option
@click.option(
    "--against",
    default="reference",
    show_default=True,
    metavar="FILE.npz|PROGRAM|TARGET",
    help="The expected results: recorded outputs (.npz), another program (ONNX, TFLite, .dlc, an edited dump), or the "
    "reference evaluator. Another target is bisected as well.",
)
@tolerance_option
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Write a reproducer to this folder.")
@compile_options("pipeline", *NUMERIC_OPTIONS)
@json_option
@reports_errors
def bisect_command(
    model: Path,
    inputs: tuple[str, ...],
    target: str,
    shapes: Shapes,
    values: dict[str, Path],
    seed: int,
    against: str,
    tolerance: float | None,
    output: Path | None,
    as_json: bool,
    compile_settings: dict[str, Any],
) -> None:
    """Finds the pass or kernel that makes a model's results wrong.

    The fault may also be in the import or in the runtime. MODEL is any model that `dlc run` takes, except a compiled one.
    """
    constants = {name: read_array(file) for name, file in values.items()}
    with progress_display() as progress:
        program = import_program(model, shapes, constants, None)
        arrays = make_inputs(program.inputs, inputs, seed)
        program = program.for_inputs(list(arrays.values()))
        if against.endswith(".npz"):
            _require_correct_import(program, model, arrays, constants, read_arrays(Path(against)), tolerance)
        is_program = Path(against).suffix in (".onnx", TFLITE_SUFFIX, TORCH_EXPORT_SUFFIX, ARTIFACT_SUFFIX, MLIR_SUFFIX)
        if is_program:
            _require_same_program(program, model, load_comparable(Path(against), shapes, values), against, arrays, tolerance)
        is_target = not against.endswith(".npz") and not is_program and against != "reference"
        targets = [target, against] if is_target else [target]
        verdicts = {t: _bisect(program, arrays, t, tolerance, compile_settings, output, progress) for t in targets}
    if as_json:
        click.echo(json.dumps({name: _as_json(verdict) for name, verdict in verdicts.items()}, indent=2))
        raise click.exceptions.Exit(int(any(verdict.fault is not None for verdict in verdicts.values())))
    for name, verdict in verdicts.items():
        _print(name, verdict)
    for name, verdict in verdicts.items():
        if verdict.fault is not None:
            prefix = f"{name}: " if len(verdicts) > 1 else ""
            fail(f"{prefix}{verdict.fault}" + (f"\n{verdict.advice}" if verdict.advice else ""))
    out.print(f"{escape(str(model))}: every step from the import to the native results is correct")


def _bisect(
    program: Program,
    arrays: Arrays,
    target: str,
    tolerance: float | None,
    compile_settings: dict[str, Any],
    output: Path | None,
    progress: Progress | None,
) -> Verdict:
    options = Options.of(**compile_settings)
    return bisect(
        program, list(arrays.values()), target, tolerance=tolerance, options=options, folder=output, progress=progress
    )


def _require_correct_import(
    program: Program, model: Path, arrays: Arrays, constants: Arrays, recorded: Arrays, tolerance: float | None
) -> None:
    """Exit with a message if the program differs from the recording before any pass."""
    wrong_outputs = [r for r in compare_recorded(program, list(arrays.values()), recorded, tolerance) if not r.agrees]
    if not wrong_outputs:
        return
    lines = [f"output {r.name} is off by {r.deviation:.1e} of its largest magnitude" for r in wrong_outputs]
    lines.insert(
        0, f"{model}: the program differs from the recording before any pass: the fault is in the import or the recording"
    )
    if model.suffix == ".onnx":
        try:
            wrong_node = first_wrong_node(model, arrays, tolerance, constants)
        except DlcError as error:
            lines.append(str(error))
        else:
            lines.append(
                f"node {wrong_node.node} ({wrong_node.op_type}) is the first that differs from onnx's reference evaluator: "
                f"{wrong_node.tensor} is off by {wrong_node.deviation:.1e}"
                if wrong_node is not None
                else "every node agrees with onnx's reference evaluator: check the inputs and the recording"
            )
    fail("\n".join(lines))


def _require_same_program(
    program: Program, model: Path, other: ComparedProgram, against: str, arrays: Arrays, tolerance: float | None
) -> None:
    """Exit with a message if the program differs from another one before any pass."""
    input_arrays = list(arrays.values())
    program_difference = difference(for_inputs(other, input_arrays), program, input_arrays, tolerance)
    if not program_difference.agrees:
        fail(f"the programs differ before any pass\n{describe_difference(str(model), against, program_difference)}")


def _as_json(verdict: Verdict) -> dict[str, Any]:
    checks = [
        {
            "stage": check.step.stage,
            "step": check.step.name,
            "compared": check.checked,
            "deviation": json_number(check.deviation),
            "seconds": check.seconds,
        }
        for check in verdict.checks
    ]
    fault = None if verdict.fault is None else str(verdict.fault)
    return {"checks": checks, "fault": fault, "advice": verdict.advice}


def _print(target: str, verdict: Verdict) -> None:
    table = Table("stage", "step", "compared", "deviation", "s", title=f"{target}: results after each step")
    for column in table.columns[3:]:
        column.justify = "right"
    for check in verdict.checks:
        step = check.step
        table.add_row(step.stage, step.name.partition("{")[0], check.checked, f"{check.deviation:.1e}", f"{check.seconds:.2f}")
    out.print(table)

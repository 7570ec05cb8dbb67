"""`dlc bisect`: what makes a model's numbers wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from dlc.caching.model_cache import DUMPED, EXPORTED, TFLITE
from dlc.cli.diff import side_of, told
from dlc.cli.given import Shapes, shape_option, value_option
from dlc.cli.run import input_option, seed_option
from dlc.cli.shared import (
    ARTIFACT_SUFFIX,
    fail,
    json_number,
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
from dlc.compiler import Program
from dlc.debug.bisect import Verdict, bisect, compare_recorded
from dlc.debug.difference import Side, difference, for_inputs
from dlc.debug.importing import first_wrong_node
from dlc.errors import DlcError, ModelError
from dlc.instrument.report import Progress
from dlc.model_files import program_of
from dlc.options import Options
from dlc.runtime.models.model import require_fitting

Arrays = dict[str, NDArray[Any]]


@click.command("bisect")
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
    help="What is right: outputs recorded elsewhere, another program (ONNX, TFLite, .dlc, a dump that was edited), or the "
    "evaluator; another target is checked as well.",
)
@tolerance_option
@click.option("--pipeline", metavar="PASSES", help='Run these passes, such as "a,b{k=1}", not the target\'s.')
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Write what shows the fault here.")
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
    pipeline: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Finds what makes the numbers of a model wrong.

    That is its import, a pass, a kernel's code, or what runs the kernels. MODEL is what `dlc run` takes, but not compiled yet.
    """
    known = {name: read_array(file) for name, file in values.items()}
    with shown_progress() as progress:
        program = program_of(model, shapes, known, None)
        arrays = make_inputs(program.inputs, inputs, seed)
        require_fitting(program.name, program.inputs, [arrays[info.name] for info in program.inputs])
        program = program.for_inputs(list(arrays.values()))
        if against.endswith(".npz"):
            _require_import(program, model, arrays, known, _recorded(Path(against)), tolerance)
        is_program = Path(against).suffix in (".onnx", TFLITE, EXPORTED, ARTIFACT_SUFFIX, DUMPED)
        if is_program:
            _require_same(program, model, side_of(Path(against), shapes, values), against, arrays, tolerance)
        is_target = not against.endswith(".npz") and not is_program and against != "reference"
        targets = [target, against] if is_target else [target]
        verdicts = {t: _bisect(program, arrays, t, tolerance, pipeline, output, progress) for t in targets}
    if as_json:
        click.echo(json.dumps({name: _as_json(verdict) for name, verdict in verdicts.items()}, indent=2))
        raise click.exceptions.Exit(int(any(verdict.fault is not None for verdict in verdicts.values())))
    for name, verdict in verdicts.items():
        _print(name, verdict)
    for name, verdict in verdicts.items():
        if verdict.fault is not None:
            where = f"{name}: " if len(verdicts) > 1 else ""
            fail(f"{where}{verdict.fault}" + (f"\n{verdict.advice}" if verdict.advice else ""))
    out.print(f"{escape(str(model))}: every step from the model to its native results keeps the numbers")


def _bisect(
    program: Program,
    arrays: Arrays,
    target: str,
    tolerance: float | None,
    pipeline: str | None,
    output: Path | None,
    progress: Progress | None,
) -> Verdict:
    options = Options.of(pipeline=pipeline)
    return bisect(
        program, list(arrays.values()), target, tolerance=tolerance, options=options, folder=output, progress=progress
    )


def _recorded(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (ValueError, EOFError) as error:
        raise ModelError(f"{path}: not an .npz file: {error}") from error


def _require_import(
    program: Program, model: Path, arrays: Arrays, known: Arrays, recorded: Arrays, tolerance: float | None
) -> None:
    """Ends with a message if the program is something else than what was recorded, before any pass."""
    wrong = [r for r in compare_recorded(program, list(arrays.values()), recorded, tolerance) if not r.agrees]
    if not wrong:
        return
    lines = [f"output {r.name} is off by {r.deviation:.1e} of its largest magnitude" for r in wrong]
    lines.insert(
        0, f"{model}: before any pass the program differs from the recording: the import is at fault, or the recording"
    )
    if model.suffix == ".onnx":
        try:
            node = first_wrong_node(model, arrays, tolerance, known)
        except DlcError as error:
            lines.append(str(error))
        else:
            lines.append(
                f"node {node.node} ({node.op_type}) is the first to give something else than onnx's own evaluator: "
                f"{node.tensor} is off by {node.deviation:.1e}"
                if node is not None
                else "every node gives what onnx's own evaluator gives: look at the inputs and at the recording"
            )
    fail("\n".join(lines))


def _require_same(program: Program, model: Path, other: Side, against: str, arrays: Arrays, tolerance: float | None) -> None:
    """Ends with a message if the program is something else than another, before any pass."""
    given = list(arrays.values())
    found = difference(for_inputs(other, given), program, given, tolerance)
    if not found.agrees:
        fail(f"before any pass the programs differ\n{told(str(model), against, found)}")


def _as_json(verdict: Verdict) -> dict[str, Any]:
    checks = [
        {
            "stage": c.step.stage,
            "step": c.step.name,
            "compared": c.checked,
            "deviation": json_number(c.deviation),
            "seconds": c.seconds,
        }
        for c in verdict.checks
    ]
    fault = None if verdict.fault is None else str(verdict.fault)
    return {"checks": checks, "fault": fault, "advice": verdict.advice}


def _print(target: str, verdict: Verdict) -> None:
    table = Table("stage", "step", "compared", "deviation", "s", title=f"{target}: what keeps the numbers")
    for column in table.columns[3:]:
        column.justify = "right"
    for check in verdict.checks:
        step = check.step
        table.add_row(step.stage, step.name.partition("{")[0], check.checked, f"{check.deviation:.1e}", f"{check.seconds:.2f}")
    out.print(table)

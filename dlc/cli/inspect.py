"""`dlc check` and `dlc targets`: what dlc can do with a model, and on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from dlc.caching.model_cache import EXPORTED, TFLITE
from dlc.cli.shared import fail, json_option, model_argument, out, reports_errors
from dlc.frontend.onnx import check_model
from dlc.frontend.problems import OpenInputsError, Problem, unsupported
from dlc.machine.architectures import HOST
from dlc.model_files import program_of
from dlc.runtime.opencl.devices import all_devices, problem_of, what_to_do
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, REFERENCE, host_supports, resolve


@click.command("check")
@model_argument
@json_option
@reports_errors
def check_command(model: Path, as_json: bool) -> None:
    """Lists all in a model that dlc does not support.

    That is nodes, dtypes and opsets of an ONNX or TFLite file, or of what torch.export.save wrote (.pt2), and what contradicts
    itself in them. What hangs on the shapes or values of inputs, for which the model is compiled when it is called, is listed
    apart. Of a model that is supported it says what it takes and returns.
    """
    if model.suffix in (".dlc", ".mlir"):
        fail(f"{model}: what dlc wrote; `dlc check` reads the ONNX model that it was made from")
    found = [] if model.suffix in (EXPORTED, TFLITE) else check_model(model)
    problems = [p for p in found if not p.at_call]
    table = None if problems else _taken_and_returned(model)
    if as_json:
        click.echo(json.dumps([vars(problem) for problem in found], indent=2))
        raise click.exceptions.Exit(1 if problems else 0)
    if table is None:
        fail(str(unsupported(str(model), problems)))
    out.print(f"{model}: everything {'that can be seen before it is called' if found else 'in it'} is supported")
    for of, places in _asked_at_calls(found).items():
        out.print(escape(f"  compiled for {of} when it is called, which {', '.join(places)} needs"))
    out.print(table)


def _taken_and_returned(model: Path) -> Table:
    """The inputs and outputs of a model. Raises UnsupportedError for one that dlc does not support."""
    try:
        program = program_of(model, None, None, None)
        inputs, outputs = (program.border or program).inputs, (program.border or program).outputs
    except OpenInputsError as known:
        inputs, outputs = known.inputs, known.outputs
    table = Table("", "name", "dtype and shape")
    for what, infos in (("input", inputs), ("output", outputs)):
        for info in infos:
            table.add_row(what, escape(info.name), escape(str(info).removeprefix(f"{info.name}: ")))
    return table


def _asked_at_calls(problems: Sequence[Problem]) -> dict[str, list[str]]:
    """What a model is compiled for when it is called, and the places that need it."""
    asked: dict[str, list[str]] = {}
    for problem in problems:
        for of in [f"the value of input '{name}'" for name in problem.inputs] or ["the shapes of its inputs"]:
            asked.setdefault(of, []).append(problem.place)
    return asked


@click.command("targets")
@json_option
@reports_errors
def targets_command(as_json: bool) -> None:
    """Lists the targets, and which of them this machine can run."""
    best = resolve("cpu").name
    rows: list[dict[str, str | bool]] = [
        {
            "target": t.name,
            "code": t.cpu if t.architecture == HOST else t.architecture,
            "runs_here": host_supports(t),
            "default": t.name == best,
        }
        for t in CPU_LEVELS.values()
    ]
    rows.append({"target": REFERENCE.name, "code": "none: NumPy", "runs_here": True, "default": False})
    devices = all_devices()
    for device in devices:
        place = ":".join(map(str, ("opencl", *device.place)))
        row: dict[str, str | bool] = {
            "target": place,
            "code": f"{device.name} ({device.platform}), as {device.target.name}",
            "runs_here": not problem_of(device),
            "default": False,
        }
        rows.append(row)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table("target", "code for", "runs here")
    for row in rows:
        here = "yes, what `cpu` means" if row["default"] else "yes" if row["runs_here"] else "no"
        table.add_row(escape(str(row["target"])), escape(str(row["code"])), here)
    out.print(table)
    profiles = ", ".join(f":{name.partition(':')[2]}" for name in OPENCL_PROFILES)
    out.print(f"A profile after an OpenCL target compiles as if the device were like that: {escape(profiles)}.")
    if not devices:
        out.print(f"No OpenCL device: {escape(what_to_do())}.")

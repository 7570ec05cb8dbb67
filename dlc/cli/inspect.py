"""`dlc check` and `dlc targets`: list what a model needs and dlc lacks, and the targets that this machine runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from dlc.caching.model_cache import TFLITE_SUFFIX, TORCH_EXPORT_SUFFIX
from dlc.cli.common import examples, fail, json_option, model_argument, reports_errors
from dlc.cli.console import out
from dlc.frontend.onnx import check_model
from dlc.frontend.problems import Problem, SpecializationRequiredError, unsupported_error
from dlc.machine.architectures import HOST
from dlc.models.model_files import import_program
from dlc.runtime.opencl.devices import all_devices, installation_hint, probe_device
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, PLUGIN_BACKENDS, REFERENCE, host_supports, resolve


@click.command("check", epilog=examples("dlc check model.onnx"))
@model_argument
@json_option
@reports_errors
def check_command(model: Path, as_json: bool) -> None:
    """Lists everything in a model that dlc does not support.

    That is unsupported nodes, dtypes and opsets, and inconsistencies in the file (ONNX, TFLite, or .pt2 of torch.export.save).
    Nodes that need a specialization for input shapes or values at run time are listed separately. For a supported model it
    prints the inputs and outputs.
    """
    if model.suffix in (".dlc", ".mlir"):
        use = "`dlc info` describes it" if model.suffix == ".dlc" else "`dlc opt` reads it"
        fail(f"{model}: written by dlc; {use}, and `dlc check` reads the model that it was compiled from")
    all_problems = [] if model.suffix in (TORCH_EXPORT_SUFFIX, TFLITE_SUFFIX) else check_model(model)
    problems = [p for p in all_problems if not p.needs_specialization]
    table = None if problems else _signature_table(model)
    if as_json:
        click.echo(json.dumps([vars(problem) for problem in all_problems], indent=2))
        raise click.exceptions.Exit(1 if problems else 0)
    if table is None:
        fail(str(unsupported_error(str(model), problems)))
    out.print(f"{model}: everything {'that can be checked before a call' if all_problems else 'in it'} is supported")
    for specialized_on, nodes in _specializations(all_problems).items():
        out.print(escape(f"  specialized at run time for {specialized_on}, needed by {', '.join(nodes)}"))
    out.print(table)


def _signature_table(model: Path) -> Table:
    """Return a table of the inputs and outputs of a model. Raises UnsupportedError for an unsupported model."""
    try:
        program = import_program(model, None, None, None)
        inputs, outputs = (program.io_signature or program).inputs, (program.io_signature or program).outputs
    except SpecializationRequiredError as error:
        inputs, outputs = error.inputs, error.outputs
    table = Table("", "name", "dtype and shape")
    for kind, infos in (("input", inputs), ("output", outputs)):
        for info in infos:
            table.add_row(kind, escape(info.name), escape(str(info).removeprefix(f"{info.name}: ")))
    return table


def _specializations(problems: Sequence[Problem]) -> dict[str, list[str]]:
    """Map each value or shape that a model is specialized for at run time to the nodes that require it."""
    needed_by: dict[str, list[str]] = {}
    for problem in problems:
        for specialized_on in [f"the value of input '{name}'" for name in problem.inputs] or ["the shapes of its inputs"]:
            needed_by.setdefault(specialized_on, []).append(problem.description)
    return needed_by


@click.command("targets", epilog=examples("dlc targets"))
@json_option
@reports_errors
def targets_command(as_json: bool) -> None:
    """Lists the targets and marks those that run on this machine."""
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
    rows += [
        {"target": name, "code": f"a plug-in's {type(backend).__name__}", "runs_here": True, "default": False}
        for name, backend in PLUGIN_BACKENDS.items()
    ]
    devices = all_devices()
    for device in devices:
        target_name = ":".join(map(str, ("opencl", *device.device_index)))
        row: dict[str, str | bool] = {
            "target": target_name,
            "code": f"{device.name} ({device.platform}), as {device.target.name}",
            "runs_here": not probe_device(device),
            "default": False,
        }
        rows.append(row)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table("target", "code for", "runs here")
    for row in rows:
        runs_here = "yes, the default (`cpu`)" if row["default"] else "yes" if row["runs_here"] else "no"
        table.add_row(escape(str(row["target"])), escape(str(row["code"])), runs_here)
    out.print(table)
    profiles = ", ".join(f":{name.partition(':')[2]}" for name in OPENCL_PROFILES)
    out.print(f"A profile suffix on an OpenCL target compiles for that kind of device: {escape(profiles)}.")
    if not devices:
        out.print(f"No OpenCL device: {escape(installation_hint())}.")

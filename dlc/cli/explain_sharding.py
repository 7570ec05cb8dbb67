"""`dlc explain-sharding`: shardings and their reasons, collectives, redundant computation and estimated times."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from dlc.cli.common import examples, json_option, model_argument, progress_display, reports_errors
from dlc.cli.console import out
from dlc.cli.mesh_options import InputSpec, input_specs, mesh_options
from dlc.cli.shape_options import Shapes, shape_option
from dlc.cli.transform_options import TransformCommand, transform_options
from dlc.compiler.sharding import shard_program, stored_shardings
from dlc.compiler.sharding_report import CommunicationModel, ShardingReport, ValueSharding, memory_text, report_sharding
from dlc.models.model_files import import_program
from dlc.runtime.collectives.mesh import Mesh
from dlc.training.model_transforms import ModelTransform

_MAX_LISTED_VALUES = 40
_SCALES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def _quantity(unit: str) -> Callable[[click.Context, click.Parameter, str], float]:
    """Return the callback that parses a number with a prefix and this unit, such as `10GB/s`."""

    def parse(context: click.Context, option: click.Parameter, text: str) -> float:
        match = re.fullmatch(rf"(\d+(?:\.\d+)?)\s*([{''.join(_SCALES)}]?){re.escape(unit)}", text)
        if match is None or not float(match[1]):
            raise click.BadParameter(f"{text!r}: expected a number of {unit}, such as {option.default}")
        return float(match[1]) * _SCALES[match[2]]

    return parse


@click.command(
    "explain-sharding",
    cls=TransformCommand,
    epilog=examples(
        "dlc explain-sharding model.onnx --mesh data=4 --train-step sgd --loss mse",
        "dlc explain-sharding model.onnx --mesh data=64,model=8 --shard 'w*=,model' --latency 2us --bandwidth 10GB/s",
    ),
)
@model_argument
@mesh_options(required=True)
@shape_option
@click.option(
    "--latency", default="10us", show_default=True, callback=_quantity("s"), help="Time of an empty message between two ranks."
)
@click.option(
    "--bandwidth", default="1.5GB/s", show_default=True, callback=_quantity("B/s"), help="Rate at which a rank sends."
)
@click.option(
    "--flops", default="40GFLOP/s", show_default=True, callback=_quantity("FLOP/s"), help="Rate at which a rank computes."
)
@transform_options
@json_option
@reports_errors
def explain_sharding_command(
    model: Path,
    mesh: Mesh,
    specs: Mapping[str, InputSpec],
    shapes: Shapes,
    latency: float,
    bandwidth: float,
    flops: float,
    as_json: bool,
    transform: ModelTransform | None,
) -> None:
    """Explains how a mesh partitions a model.

    It lists the sharding of each input, output and split value with its reason, the bytes and estimated time of each
    collective, and the source lines that several ranks compute redundantly, and estimates the time of a call. It needs shapes
    only, so that one process simulates a mesh of any size: nothing is compiled or run.
    """
    with progress_display():
        program = import_program(model, shapes, None, transform)
        annotations = input_specs(mesh, specs, program.inputs, program.defaults, stored_shardings(program.module)[0])
        sharded = shard_program(program, mesh, annotations, [None] * len(program.outputs))
        report = report_sharding(sharded, CommunicationModel(latency, bandwidth, flops))
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
        return
    _print(report)


def _print(report: ShardingReport) -> None:
    values = report.values[:_MAX_LISTED_VALUES]
    _print_values([("input", v) for v in report.inputs] + [("", v) for v in values] + [("output", v) for v in report.outputs])
    if len(report.values) > len(values):
        out.print(f"and {len(report.values) - len(values)} more split values; --json lists all")
    if report.collectives:
        table = Table("collective", "runs", "bytes", "µs", title="Collectives per call, as a rank sends them")
        for column in table.columns[1:]:
            column.justify = "right"
        for c in report.collectives:
            table.add_row(escape(c.label), str(c.runs), f"{c.bytes:,}", f"{1e6 * c.seconds:.1f}")
        out.print(table)
    if report.redundant:
        table = Table("line", "FLOPs", title="Redundant computation, of all ranks")
        table.columns[1].justify = "right"
        for r in report.redundant:
            table.add_row(escape(r.line), f"{r.flops:,}")
        out.print(table)
    out.print(memory_text(report))
    times = f"{1e3 * report.compute_seconds:.3g} ms of computation and {1e3 * report.collective_seconds:.3g} ms of collectives"
    out.print(f"estimated per call: {times}; parallel efficiency {report.efficiency:.2f}")


def _print_values(rows: list[tuple[str, ValueSharding]]) -> None:
    table = Table("", "value", "type", "sharding", "reason")
    for kind, value in rows:
        table.add_row(kind, *(escape(text) for text in (value.name, value.type, value.spec, value.reason)))
    out.print(table)

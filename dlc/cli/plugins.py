"""`dlc plugins`: list the plug-ins."""

from __future__ import annotations

import json
import warnings
from importlib import import_module

import click
from rich.markup import escape
from rich.table import Table

from dlc.cli.common import examples, json_option, reports_errors
from dlc.cli.console import out
from dlc.plugins.registry import GROUP, PluginStatus, contributions, statuses


@click.command("plugins", epilog=examples("dlc plugins"))
@json_option
@reports_errors
def plugins_command(as_json: bool) -> None:
    """Lists the plug-ins, where they are from, and their failures.

    It loads all of them, with the tables that are otherwise imported when a frontend needs them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The failures are in the list.
        rows = [_row(status) for status in statuses()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        out.print(f"No plug-ins: no installed package has an entry point of the group {GROUP} (docs/plugins.md).")
        return
    table = Table("plug-in", "version", "from", "adds", "failures")
    for row in rows:
        cells = (row["name"], row["version"], row["origin"], row["adds"], row["failures"])
        table.add_row(*(escape(str(cell)) for cell in cells))
    out.print(table)


# The tables to which plug-ins add entries.
_TABLES = {
    "partials": "dlc.passes.autodiff.partials:PARTIALS",
    "jvp_rules": "dlc.passes.autodiff.jvp_rules:JVP_RULES",
    "transpose_rules": "dlc.passes.autodiff.transpose_rules:TRANSPOSE_RULES",
    "no_derivative": "dlc.passes.autodiff.rules:NO_DERIVATIVE",
    "batching_rules": "dlc.passes.batching.expand_vmap:RULES",
    "no_batching": "dlc.passes.batching.expand_vmap:NO_BATCHING",
    "passes": "dlc.pipelines:PASSES",
    "onnx_converters": "dlc.frontend.onnx.operators:OTHER_OPERATORS",
    "tflite_converters": "dlc.frontend.tflite.reader:OPERATORS",
    "stablehlo_converters": "dlc.stablehlo.reader:OPERATORS",
    "pytorch_rules": "dlc.pytorch.rules:RULES",
    "calibration_methods": "dlc.quantization.ranges:METHODS",
    "targets": "dlc.target:PLUGIN_BACKENDS",
}


def _row(status: PluginStatus) -> dict[str, str]:
    adds = list(status.plugin.tables()) if status.plugin is not None else []
    for name in adds:
        if name in _TABLES:
            module, _, variable = _TABLES[name].partition(":")
            # Reading the table finds entries that are invalid or exist already.
            len(getattr(import_module(module), variable))
        else:
            list(contributions(name))
    failures = [f"{table.replace('_', ' ')}: {error}" if table else error for table, error in status.failures.items()]
    return {
        "name": status.name,
        "version": status.version,
        "origin": status.origin,
        "adds": ", ".join(table.replace("_", " ") for table in adds if table not in status.failures),
        "failures": "; ".join(failures),
    }

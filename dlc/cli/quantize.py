"""`dlc quantize`: a model in floats becomes one of integers."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from dlc.cli.shared import Numbers, json_option, model_argument, out, reports_errors, shown_progress, threads_option
from dlc.files.whole_files import require_writable
from dlc.frontend.onnx.graph import load
from dlc.frontend.onnx.named import inputs_of
from dlc.options import Options
from dlc.quantization.calibration import Runner
from dlc.quantization.quantizing import quantized
from dlc.quantization.report import Quantization, decibels
from dlc.quantization.samples import Samples
from dlc.quantization.settings import ACTIVATIONS, METHODS, ROUNDINGS, Activations, Method, Rounding, Settings

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("quantize")
@model_argument
@click.option(
    "--calibrate",
    "samples",
    type=click.Path(exists=True, path_type=Path),
    metavar="FOLDER|FILE.npz",
    help="Inputs like those in use: NAME.npy with many examples along axis 0 for each input, or .npz files of one set each.",
)
@click.option("-o", "--output", required=True, type=FILE, help="Write the quantised ONNX model here.")
@click.option("--dynamic", is_flag=True, help="Quantise data when the model runs; no calibration. For MatMul and Gemm.")
@click.option(
    "--method", type=click.Choice(METHODS), default="mse", show_default=True, help="What chooses the range of a tensor."
)
@click.option(
    "--percentile", type=float, default=99.99, show_default=True, help="The share of values in a range, of percentile."
)
@click.option("--symmetric", is_flag=True, help="Ranges with zero in their middle.")
@click.option("--activations", type=click.Choice(ACTIVATIONS), default="u8", show_default=True, help="The integers of data.")
@click.option("--per-tensor", is_flag=True, help="One scale for all weights of a layer, not one for each channel.")
@click.option(
    "--rounding",
    type=click.Choice(ROUNDINGS),
    default="data",
    show_default=True,
    help="Of weights: so that sums change least on the data, or each to the nearest.",
)
@click.option("--as-is", is_flag=True, help="Leave channels as they are, also where some have much smaller values than others.")
@click.option("--everywhere", is_flag=True, help="Quantise results of layers too: for ONNX Runtime.")
@click.option("--keep", multiple=True, metavar="LAYER", help="Keep a layer in floats; patterns such as 'layer4.*'; repeatable.")
@click.option(
    "--bound",
    type=Numbers(0, min_open=True),
    help="Keep the worst layers in floats until the outputs differ less: 0.05.",
)
@click.option("--layers", is_flag=True, help="Measure the outputs' error with each layer alone in integers.")
@click.option("--page", type=FILE, metavar="FILE.html", help="Write what was measured as an HTML page.")
@threads_option
@json_option
@reports_errors
def quantize_command(
    model: Path,
    samples: Path | None,
    output: Path,
    dynamic: bool,
    method: Method,
    percentile: float,
    symmetric: bool,
    activations: Activations,
    per_tensor: bool,
    rounding: Rounding,
    as_is: bool,
    everywhere: bool,
    keep: tuple[str, ...],
    bound: float | None,
    layers: bool,
    page: Path | None,
    num_threads: int | None,
    as_json: bool,
) -> None:
    """Makes a model of 8-bit integers of an ONNX model in floats.

    It is written as ONNX that other runtimes read too. An error is the norm of the difference from what MODEL computes, as a
    share of that norm, over the calibration data.
    """
    if samples is None and not dynamic:
        raise click.UsageError("--calibrate: say where inputs like those in use are, or --dynamic")
    if output.suffix != ".onnx":
        raise click.UsageError(f"-o {output}: what is written is an ONNX model, whose name ends in .onnx; compile it then")
    for path in (output, *([page] if page is not None else [])):
        require_writable(path)
    settings = Settings(
        method=method,
        percentile=percentile,
        symmetric=symmetric,
        activations=activations,
        per_channel=not per_tensor,
        rounding=rounding,
        equalize=not as_is,
        everywhere=everywhere,
        keep=keep,
        bound=bound,
        dynamic=dynamic,
    )
    with shown_progress() as progress:
        file = load(model)
        data = None if samples is None else Samples.read(samples, inputs_of(file))
        made = quantized(
            file, data, settings, Runner(Options.of(num_threads=num_threads, cache=False), progress), layers=layers
        )
    made.save(output)
    if page is not None:
        made.save_page(page)
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=1))
        return
    _print(made, output)


def _print(made: Quantization, output: Path) -> None:
    if any(layer.error is not None or layer.kept for layer in made.layers):
        table = Table("layer", "op", "weights", "values of its data", "error alone", "", title=escape(made.name))
        for column in table.columns[2:5]:
            column.no_wrap, column.justify = True, "right"
        for layer in made.layers:
            values = "" if layer.data is None else f"{layer.data.least:.4g} to {layer.data.largest:.4g}"
            error = "" if layer.error is None else f"{layer.error:.2%}"
            kept = "kept in floats" if layer.kept else ""
            table.add_row(escape(layer.name), layer.op, f"{layer.weights:,}", values, error, kept)
        out.print(table)
    for name, reason in made.others.items():
        out.print(escape(f"in floats: {name}: {reason}"))
    sizes = f"{made.bytes_before / 1e6:.2f} → {made.bytes_after / 1e6:.2f} MB"
    out.print(f"{len(made.layers) - made.kept} of {len(made.layers)} layers in integers; {sizes}")
    if made.error is not None:
        out.print(f"error of the outputs: {made.error:.2%} ({decibels(made.error)}), over {made.samples} sets of inputs")
    out.print(f"Saved as {escape(str(output))}.")

"""`dlc quantize`: post-training quantization of an ONNX model to int8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from dlc.cli.common import NonNanFloatRange, examples, json_option, model_argument, progress_display, reports_errors
from dlc.cli.compile_options import compile_options
from dlc.cli.console import out
from dlc.files.atomic_writes import require_writable
from dlc.frontend.onnx.graph import load
from dlc.frontend.onnx.tensor_names import inputs_of
from dlc.options import Options
from dlc.quantization.calibration import ModelRunner
from dlc.quantization.calibration_data import CalibrationData
from dlc.quantization.post_training import quantize_file
from dlc.quantization.ranges import METHODS
from dlc.quantization.report import QuantizationReport, decibels
from dlc.quantization.settings import ACTIVATIONS, ROUNDINGS, Activations, QuantizationSettings, Rounding

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    "quantize",
    epilog=examples(
        "dlc quantize model.onnx --calibrate samples/ -o quantized.onnx",
        "dlc quantize model.onnx --dynamic -o quantized.onnx",
    ),
)
@model_argument
@click.option(
    "--calibrate",
    "samples",
    type=click.Path(exists=True, path_type=Path),
    metavar="FOLDER|FILE.npz",
    help="Calibration data: NAME.npy per input with many samples along axis 0, or .npz files with one sample each.",
)
@click.option("-o", "--output", required=True, type=FILE, help="Write the quantized ONNX model here.")
@click.option(
    "--dynamic",
    is_flag=True,
    help="Dynamic quantization of MatMul and Gemm: activations are quantized at run time; needs no calibration data.",
)
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="mse",
    show_default=True,
    help="The method that chooses the range of an activation.",
)
@click.option(
    "--percentile",
    type=float,
    default=99.99,
    show_default=True,
    help="With --method percentile: the percentage of values in the range.",
)
@click.option("--symmetric", is_flag=True, help="Use activation ranges that are symmetric around zero.")
@click.option("--activations", type=click.Choice(ACTIVATIONS), default="u8", show_default=True, help="The activation dtype.")
@click.option(
    "--reduce-range", is_flag=True, help="Quantize weights to 7 bits: faster on x86-64 without VNNI, and less accurate."
)
@click.option("--per-tensor", is_flag=True, help="Use one scale per weight tensor instead of one per output channel.")
@click.option(
    "--rounding",
    type=click.Choice(ROUNDINGS),
    default="data",
    show_default=True,
    help="How weights are rounded: data minimizes the output error on the calibration data (GPTQ); nearest rounds each weight.",
)
@click.option("--no-equalize", is_flag=True, help="Skip channel equalization (SmoothQuant).")
@click.option("--quantize-outputs", is_flag=True, help="Quantize layer outputs too, for ONNX Runtime.")
@click.option(
    "--keep-float", multiple=True, metavar="LAYER", help="Keep a layer in float; patterns such as 'layer4.*'; repeatable."
)
@click.option(
    "--max-error",
    type=NonNanFloatRange(0, min_open=True),
    help="Keep the most sensitive layers in float until the output error is at most this, such as 0.05.",
)
@click.option("--layers", is_flag=True, help="Measure the output error of each layer quantized alone.")
@click.option("--page", type=FILE, metavar="FILE.html", help="Write the measurements as an HTML page.")
@compile_options("num_threads")
@json_option
@reports_errors
def quantize_command(
    model: Path,
    samples: Path | None,
    output: Path,
    dynamic: bool,
    method: str,
    percentile: float,
    symmetric: bool,
    activations: Activations,
    per_tensor: bool,
    reduce_range: bool,
    rounding: Rounding,
    no_equalize: bool,
    quantize_outputs: bool,
    keep_float: tuple[str, ...],
    max_error: float | None,
    layers: bool,
    page: Path | None,
    as_json: bool,
    compile_settings: dict[str, Any],
) -> None:
    """Quantizes an ONNX model to int8.

    The result is an ONNX model with QuantizeLinear and DequantizeLinear nodes (QDQ), which other runtimes read too. Errors
    are relative: the norm of the output difference divided by the norm of the float outputs, over the calibration data.
    """
    if samples is None and not dynamic:
        raise click.UsageError("expected calibration data: --calibrate FOLDER|FILE.npz; or use --dynamic, which needs none")
    if output.suffix != ".onnx":
        raise click.UsageError(f"-o {output}: expected a name that ends in .onnx; compile the quantized model afterwards")
    for path in (output, *([page] if page is not None else [])):
        require_writable(path)
    settings = QuantizationSettings(
        method=method,
        percentile=percentile,
        symmetric=symmetric,
        activations=activations,
        per_channel=not per_tensor,
        reduce_range=reduce_range,
        rounding=rounding,
        equalize=not no_equalize,
        quantize_outputs=quantize_outputs,
        keep_float=keep_float,
        max_error=max_error,
        dynamic=dynamic,
    )
    with progress_display() as progress:
        file = load(model)
        data = None if samples is None else CalibrationData.read(samples, inputs_of(file))
        quantized = quantize_file(
            file, data, settings, ModelRunner(Options.of(**compile_settings, cache=False), progress), layers=layers
        )
    quantized.save(output)
    if page is not None:
        quantized.save_page(page)
    if as_json:
        click.echo(json.dumps(quantized.to_json(), indent=1))
        return
    _print(quantized, output)


def _print(report: QuantizationReport, output: Path) -> None:
    if any(layer.error is not None or layer.kept_in_float for layer in report.layers):
        table = Table("layer", "op", "weights", "input range", "error if quantized alone", "", title=escape(report.name))
        for column in table.columns[2:5]:
            column.no_wrap, column.justify = True, "right"
        for layer in report.layers:
            value_range = "" if layer.data is None else f"{layer.data.min_value:.4g} to {layer.data.max_value:.4g}"
            error = "" if layer.error is None else f"{layer.error:.2%}"
            kept_in_float = "kept in float" if layer.kept_in_float else ""
            table.add_row(escape(layer.name), layer.op, f"{layer.weights:,}", value_range, error, kept_in_float)
        out.print(table)
    for name, reason in report.skipped_nodes.items():
        out.print(escape(f"not quantized: {name}: {reason}"))
    sizes = f"{report.bytes_before / 1e6:.2f} → {report.bytes_after / 1e6:.2f} MB"
    out.print(f"{len(report.layers) - report.kept_in_float} of {len(report.layers)} layers quantized; {sizes}")
    if report.error is not None:
        out.print(f"output error: {report.error:.2%} ({decibels(report.error)}) over {report.samples} samples")
    out.print(f"Saved as {escape(str(output))}.")

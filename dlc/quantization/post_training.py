"""Post-training quantization of an ONNX model, from calibration data to the quantized model and its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.errors import DlcError
from dlc.files.model_source import ModelSource, path_or_bytes
from dlc.frontend.onnx.graph import ModelFile, load
from dlc.frontend.onnx.tensor_names import inputs_of
from dlc.options import Options
from dlc.quantization.calibration import FloatModel, ModelRunner, observe_tensors
from dlc.quantization.calibration_data import CalibrationData
from dlc.quantization.channel_equalization import equalize_channels
from dlc.quantization.dynamic_quantization import dynamic_layers, dynamic_model
from dlc.quantization.graph import QuantizationGraph
from dlc.quantization.layer_selection import Layers, find_layers, quantized_tensors
from dlc.quantization.preparation import prepare_graph
from dlc.quantization.qdq_model import build_qdq_model
from dlc.quantization.ranges import choose_parameters
from dlc.quantization.report import InputRange, LayerReport, QuantizationReport
from dlc.quantization.sensitivity import LayerSwitchModel, min_float_layers
from dlc.quantization.settings import Activations, QuantizationSettings, Rounding
from dlc.quantization.weights import quantize_weights

if TYPE_CHECKING:
    from onnx import ModelProto

# Number of sets of inputs for measuring the error of each layer.
_MAX_PROBE_SETS = 8


def quantize(
    model: ModelSource | ModelProto,
    samples: str | PathLike[str] | Iterable[Mapping[str, Any] | Any] | None = None,
    *,
    dynamic: bool = False,
    method: str = "mse",
    percentile: float = 99.99,
    symmetric: bool = False,
    activations: Activations = "u8",
    per_channel: bool = True,
    reduce_range: bool = False,
    rounding: Rounding = "data",
    equalize: bool = True,
    quantize_outputs: bool = False,
    keep_float: Sequence[str] = (),
    max_error: float | None = None,
    layers: bool = False,
    num_threads: int | None = None,
) -> QuantizationReport:
    """Quantize the convolutions and matrix products of an ONNX model to int8.

    The result has QuantizeLinear and DequantizeLinear nodes (QDQ), which other runtimes read too. dlc runs the float model on
    `samples`, several dozen representative inputs, to find the ranges of the activations. `samples` is a folder or an `.npz`
    file (docs/quantization.md), or an iterable of dicts from input names to arrays, or of arrays for a model with one input.

    - `dynamic`: quantize only the weights of MatMul and Gemm; activations are quantized at run time, without samples.
    - `method`: the range of an activation. `minmax` includes all values, `percentile` a percentage of them; `mse` minimizes the
      mean squared error, `entropy` the KL divergence.
    - `symmetric`: use activation ranges that are symmetric around zero.
    - `activations`: the activation dtype, `u8` or `s8`. Weights are always int8.
    - `per_channel`: one weight scale per output channel; if False, one per tensor.
    - `reduce_range`: quantize weights to 7 bits, which is faster on x86-64 processors without VNNI, and less accurate.
    - `rounding`: `data` rounds weights such that outputs change least on the samples (GPTQ), `nearest` rounds each weight.
    - `equalize`: equalize channels whose values are much smaller than others (SmoothQuant).
    - `quantize_outputs`: also quantize layer outputs and the tensors between layers. ONNX Runtime needs this for int8
      convolutions; dlc is as fast and more accurate without it.
    - `keep_float`: layers that stay in float; patterns such as `layer4.*`.
    - `max_error`: the maximum output error, relative to the norm. The fewest, most sensitive layers stay in float to meet it.
    - `layers`: measure the output error of each layer quantized alone.

    Raises ModelError for a malformed file or missing samples, ShapeError and DTypeError for samples that do not match the
    inputs, UnsupportedError for a model that is already quantized or has nothing to quantize, and DlcError for invalid settings
    or a maximum error that cannot be met.
    """
    settings = QuantizationSettings(
        method=method,
        percentile=percentile,
        symmetric=symmetric,
        activations=activations,
        per_channel=per_channel,
        reduce_range=reduce_range,
        rounding=rounding,
        equalize=equalize,
        quantize_outputs=quantize_outputs,
        keep_float=tuple(keep_float),
        max_error=max_error,
        dynamic=dynamic,
    )
    file = load(path_or_bytes(model))
    inputs = inputs_of(file)
    data = None
    if isinstance(samples, str | PathLike):
        data = CalibrationData.read(Path(samples), inputs)
    elif samples is not None:
        data = CalibrationData.from_iterable(samples, inputs)
    return quantize_file(file, data, settings, ModelRunner(Options.of(num_threads=num_threads, cache=False)), layers=layers)


def quantize_file(
    file: ModelFile, samples: CalibrationData | None, settings: QuantizationSettings, runner: ModelRunner, *, layers: bool
) -> QuantizationReport:
    """Quantize a model file; see `quantize`."""
    graph = prepare_graph(file)
    candidates = find_layers(graph)
    if settings.dynamic:
        return _quantize_dynamic(file, graph, candidates, samples, settings, runner)
    if samples is None:
        raise DlcError(
            f"{file.name}: static quantization needs calibration data; pass samples (--calibrate), or quantize dynamically "
            "(--dynamic)"
        )
    observed_tensors = quantized_tensors(graph, candidates.quantizable, quantize_outputs=settings.quantize_outputs)
    floats = FloatModel(graph, observed_tensors, samples, runner)
    scaled_tensors = equalize_channels(graph, candidates.quantizable, floats) if settings.equalize else {}
    candidates = find_layers(graph)
    tensors = quantized_tensors(graph, candidates.quantizable, quantize_outputs=settings.quantize_outputs)
    kept_in_float = set(candidates.matching(settings.keep_float))
    sources = dict.fromkeys(tensors.values())
    statistics = observe_tensors(
        graph, candidates.quantizable, sources, floats, scaled_tensors, moments=settings.rounding == "data"
    )
    parameters = {name: choose_parameters(histogram, settings) for name, histogram in statistics.values.items()}
    weights = {
        layer.name: quantize_weights(
            graph,
            layer,
            float(parameters[tensors[layer.data]].scale),
            statistics.moments.get(layer.name),
            per_channel=settings.per_channel,
            reduce_range=settings.reduce_range,
        )
        for layer in candidates.quantizable
    }
    errors: dict[str, float] = {}
    if layers or settings.max_error is not None:
        probes = samples.subset(_MAX_PROBE_SETS)
        switch_model = LayerSwitchModel(graph, candidates.quantizable, parameters, weights, settings, samples, probes, runner)
        for k, layer in enumerate(candidates.quantizable):
            errors[layer.name] = switch_model.layer_error(layer.name)
            runner.report_progress("measuring layers", k + 1, len(candidates.quantizable))
        if settings.max_error is not None:
            most_sensitive = sorted(errors.keys() - kept_in_float, key=lambda name: -errors[name])
            kept_in_float |= set(most_sensitive[: min_float_layers(switch_model.error, most_sensitive, settings.max_error)])
    while True:
        quantized_layers = [layer for layer in candidates.quantizable if layer.name not in kept_in_float]
        quantized_model = build_qdq_model(
            graph, quantized_layers, parameters, weights, quantize_outputs=settings.quantize_outputs
        )
        error = floats.measure_error(quantized_model)
        if settings.max_error is None or error <= settings.max_error or not quantized_layers:
            break
        # The switch model rounds differently from the QDQ model, so that the error may exceed `max_error` slightly.
        kept_in_float.add(max(quantized_layers, key=lambda layer: errors[layer.name]).name)
    rows: list[LayerReport] = []
    for layer in candidates.quantizable:
        source = tensors[layer.data]
        histogram, input_parameters = statistics.values[source], parameters[source]
        data = InputRange(histogram.min_value, histogram.max_value, float(input_parameters.scale), input_parameters.zero_point)
        size = int(graph.constants[layer.weights].size)
        rows.append(LayerReport(layer.name, layer.op, size, data, errors.get(layer.name), layer.name in kept_in_float))
    return QuantizationReport.of(file, quantized_model, settings, rows, candidates.skipped_nodes, len(samples), error)


def _quantize_dynamic(
    file: ModelFile,
    graph: QuantizationGraph,
    candidates: Layers,
    samples: CalibrationData | None,
    settings: QuantizationSettings,
    runner: ModelRunner,
) -> QuantizationReport:
    if settings.max_error is not None:
        raise DlcError(f"{file.name}: max_error and dynamic exclude each other; remove one of them")
    kept_in_float = candidates.matching(settings.keep_float)
    layers = dynamic_layers(graph, candidates.quantizable)
    quantized_layers = [layer for layer in layers if layer.name not in kept_in_float]
    quantized_model = dynamic_model(
        graph, quantized_layers, per_channel=settings.per_channel, reduce_range=settings.reduce_range
    )
    rows = [
        LayerReport(layer.name, layer.op, int(graph.constants[layer.weights].size), None, None, layer not in quantized_layers)
        for layer in candidates.quantizable
    ]
    error = None if samples is None else FloatModel(graph, (), samples, runner).measure_error(quantized_model)
    return QuantizationReport.of(file, quantized_model, settings, rows, candidates.skipped_nodes, len(samples or ()), error)

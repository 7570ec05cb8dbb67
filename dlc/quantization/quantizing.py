"""Post-training quantisation of an ONNX model: from floats and calibration data to a model of integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.errors import DlcError
from dlc.files.model_source import ModelSource, path_or_bytes
from dlc.frontend.onnx.graph import ModelFile, load
from dlc.frontend.onnx.named import inputs_of
from dlc.options import Options
from dlc.quantization.calibration import Floats, Runner, observed
from dlc.quantization.dynamic import dynamic_layers, dynamic_model
from dlc.quantization.equalizing import equalize_channels
from dlc.quantization.graph import Graph
from dlc.quantization.placing import Layers, layers_of, tensors_of
from dlc.quantization.preparing import prepared
from dlc.quantization.ranges import parameters_of
from dlc.quantization.report import Data, LayerReport, Quantization
from dlc.quantization.rewriting import quantised_model
from dlc.quantization.samples import Samples
from dlc.quantization.sensitivity import Switched, least_kept
from dlc.quantization.settings import Activations, Method, Rounding, Settings
from dlc.quantization.weights import quantised_weights

if TYPE_CHECKING:
    from onnx import ModelProto

# Sets of inputs that each layer's error is measured with.
_PROBES = 8


def quantize(
    model: ModelSource | ModelProto,
    samples: str | PathLike[str] | Iterable[Mapping[str, Any] | Any] | None = None,
    *,
    dynamic: bool = False,
    method: Method = "mse",
    percentile: float = 99.99,
    symmetric: bool = False,
    activations: Activations = "u8",
    per_channel: bool = True,
    rounding: Rounding = "data",
    equalize: bool = True,
    everywhere: bool = False,
    keep: Sequence[str] = (),
    bound: float | None = None,
    layers: bool = False,
    num_threads: int | None = None,
) -> Quantization:
    """The ONNX model `model` with its convolutions and products by weights in integers of 8 bits, as QuantizeLinear and
    DequantizeLinear, which other runtimes read too; dlc itself runs it on `samples` to see which values there are.

    `samples` are inputs like those in use, some dozens: a folder or an `.npz` file (docs/quantization.md), or what gives a dict
    from names of inputs to arrays for each set, or arrays, if the model has one input.

    `method` chooses the range of a tensor: `minmax` has all values in it, `percentile` a share of them, `mse` makes the mean
    square of the error least, `entropy` the divergence of what is left from what there was. `symmetric` ranges have zero in
    their middle; `activations` are `u8` or `s8`. Weights are s8 with a scale for each output channel, or one for all with
    `per_channel=False`; `rounding="data"` rounds them so that sums change least on the samples, `"nearest"` each by itself.
    With `equalize` channels of which some have small values get ranges that are alike, by factors that weights take out again.
    `everywhere` quantises results of layers and what lies between them too, without which ONNX Runtime computes convolutions
    in floats; dlc is as fast and more exact without. Layers that `keep` names (patterns such as `layer4.*`) stay in floats;
    with `bound` so do as few of the worst ones as will do for the outputs to differ by no more than this share of their norm.
    `layers` measures the outputs' error with each layer alone in integers.

    With `dynamic` no samples are needed: weights of MatMul and Gemm are integers, data becomes integers when the model runs.

    Raises ModelError for a malformed file and for samples that are not there, ShapeError and DTypeError for samples that do not
    fit, UnsupportedError for a model that is quantised already or has nothing to quantise, and DlcError for settings that are
    none and for a bound that cannot be met.
    """
    settings = Settings(
        method=method,
        percentile=percentile,
        symmetric=symmetric,
        activations=activations,
        per_channel=per_channel,
        rounding=rounding,
        equalize=equalize,
        everywhere=everywhere,
        keep=tuple(keep),
        bound=bound,
        dynamic=dynamic,
    )
    file = load(path_or_bytes(model))
    inputs = inputs_of(file)
    data = None
    if isinstance(samples, str | PathLike):
        data = Samples.read(Path(samples), inputs)
    elif samples is not None:
        data = Samples.given(samples, inputs)
    return quantized(file, data, settings, Runner(Options.of(num_threads=num_threads, cache=False)), layers=layers)


def quantized(file: ModelFile, samples: Samples | None, settings: Settings, runner: Runner, *, layers: bool) -> Quantization:
    """A model file quantised, as `quantize` says."""
    graph = prepared(file)
    found = layers_of(graph)
    if settings.dynamic:
        return _dynamic(file, graph, found, samples, settings, runner)
    if samples is None:
        raise DlcError(f"{file.name}: quantising data needs samples of it (--calibrate); without them there is --dynamic")
    watched = tensors_of(graph, found.quantised, everywhere=settings.everywhere)
    floats = Floats(graph, watched, samples, runner)
    scaled = equalize_channels(graph, found.quantised, floats) if settings.equalize else {}
    found = layers_of(graph)
    tensors = tensors_of(graph, found.quantised, everywhere=settings.everywhere)
    kept = set(found.matching(settings.keep))
    sources = dict.fromkeys(tensors.values())
    seen = observed(graph, found.quantised, sources, floats, scaled, moments=settings.rounding == "data")
    parameters = {name: parameters_of(histogram, settings) for name, histogram in seen.values.items()}
    weights = {
        layer.name: quantised_weights(
            graph,
            layer,
            float(parameters[tensors[layer.data]].scale),
            seen.moments.get(layer.name),
            per_channel=settings.per_channel,
        )
        for layer in found.quantised
    }
    errors: dict[str, float] = {}
    if layers or settings.bound is not None:
        probes = samples.some(_PROBES)
        switched = Switched(graph, found.quantised, parameters, weights, settings, samples, probes, runner)
        for k, layer in enumerate(found.quantised):
            errors[layer.name] = switched.probed(layer.name)
            runner.told("measuring layers", k + 1, len(found.quantised))
        if settings.bound is not None:
            worst = sorted(errors.keys() - kept, key=lambda name: -errors[name])
            kept |= set(worst[: least_kept(switched.error, worst, settings.bound)])
    while True:
        chosen = [layer for layer in found.quantised if layer.name not in kept]
        made = quantised_model(graph, chosen, parameters, weights, everywhere=settings.everywhere)
        error = floats.error_of(made)
        if settings.bound is None or error <= settings.bound or not chosen:
            break
        # Sums of integers are rounded once, as the switched model's are not: it may be a little off.
        kept.add(max(chosen, key=lambda layer: errors[layer.name]).name)
    rows: list[LayerReport] = []
    for layer in found.quantised:
        source = tensors[layer.data]
        histogram, scaled = seen.values[source], parameters[source]
        data = Data(histogram.least, histogram.largest, float(scaled.scale), scaled.zero_point)
        size = int(graph.constants[layer.weights].size)
        rows.append(LayerReport(layer.name, layer.op, size, data, errors.get(layer.name), layer.name in kept))
    return Quantization.of(file, made, settings, rows, found.others, len(samples), error)


def _dynamic(
    file: ModelFile, graph: Graph, found: Layers, samples: Samples | None, settings: Settings, runner: Runner
) -> Quantization:
    if settings.bound is not None:
        raise DlcError(f"{file.name}: a bound chooses among layers whose data is quantised beforehand; leave out dynamic")
    kept = found.matching(settings.keep)
    layers = dynamic_layers(graph, found.quantised)
    chosen = [layer for layer in layers if layer.name not in kept]
    made = dynamic_model(graph, chosen, per_channel=settings.per_channel)
    rows = [
        LayerReport(layer.name, layer.op, int(graph.constants[layer.weights].size), None, None, layer not in chosen)
        for layer in found.quantised
    ]
    error = None if samples is None else Floats(graph, (), samples, runner).error_of(made)
    return Quantization.of(file, made, settings, rows, found.others, len(samples or ()), error)

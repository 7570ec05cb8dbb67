"""Run the float model on calibration data and collect statistics of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from dlc.errors import DlcError
from dlc.files.model_source import path_or_bytes
from dlc.instrument.report import Progress, ProgressEvent
from dlc.models.model_files import compile_file
from dlc.options import Options
from dlc.quantization.calibration_data import CalibrationData
from dlc.quantization.graph import QuantizationGraph
from dlc.quantization.histogram import Histogram
from dlc.quantization.layer_selection import Layer
from dlc.quantization.moments import MAX_ENTRIES, Moments
from dlc.quantization.output_error import OutputError
from dlc.runtime.models.model import Model
from dlc.weights import Array

# Number of calibration sets that the moments are computed from.
_MAX_MOMENT_SETS = 64


@dataclass(frozen=True)
class ModelRunner:
    """Compiles the models that quantization runs, and reports progress."""

    options: Options
    progress: Progress | None = None

    def compiled(self, model: ModelProto, description: str) -> Model:
        """Compile a model for this machine."""
        # One progress line for the whole compilation, without pass names.
        self.report_progress(f"compiling {description}")
        return compile_file(path_or_bytes(model), "cpu", None, self.options)

    def report_progress(self, task: str, done: int = 0, total: int = 0) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(ProgressEvent(task, "", done, total))


class FloatModel:
    """The float model with inner tensors as additional outputs, run on calibration data."""

    def __init__(self, graph: QuantizationGraph, tensors: Iterable[str], samples: CalibrationData, runner: ModelRunner) -> None:
        inputs, self.outputs = {value.name for value in graph.inputs}, graph.outputs
        inner = [name for name in tensors if name not in inputs and name not in self.outputs]
        self.samples, self.runner, self.name = samples, runner, graph.name
        self.model = runner.compiled(graph.to_model(outputs=inner), "the float model")

    def runs(self, task: str) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the inputs and results of each set of inputs; only one set is in memory at a time."""
        for k, sample in enumerate(self.samples):
            yield {**sample, **run_model(self.model, sample, self.samples.source)}
            self.runner.report_progress(task, k + 1, len(self.samples))

    def measure_error(self, quantized_model: ModelProto) -> float:
        """Return the output error of another model."""
        model, difference = self.runner.compiled(quantized_model, "the quantized model"), OutputError.empty()
        for sample, run in zip(self.samples, self.runs("comparing"), strict=True):
            expected = {name: run[name] for name in self.outputs}
            difference.add(expected, run_model(model, sample, self.samples.source))
        return difference.error


@dataclass(frozen=True)
class TensorStatistics:
    """Statistics of the float model: histograms of tensors and moments of layer inputs."""

    values: dict[str, Histogram]
    moments: dict[str, Moments]


def observe_tensors(
    graph: QuantizationGraph,
    layers: Sequence[Layer],
    tensors: Iterable[str],
    floats: FloatModel,
    scaled_tensors: Mapping[str, tuple[str, Array]],
    *,
    moments: bool,
) -> TensorStatistics:
    """Collect histograms of `tensors`, and with `moments` the moments of layer inputs.

    `scaled_tensors` maps a tensor to another tensor and the factor that it is multiplied by.
    """
    statistics = TensorStatistics({name: Histogram() for name in tensors}, _moments(graph, layers) if moments else {})
    data = {layer.name: layer.data for layer in layers if layer.name in statistics.moments}
    moment_sets = set(floats.samples.subset_indices(_MAX_MOMENT_SETS))
    for k, run in enumerate(floats.runs("calibrating")):
        for name, histogram in statistics.values.items():
            histogram.add(_value(run, name, scaled_tensors), f"{graph.name}: tensor '{name}', calibration set {k}")
        for name in data if k in moment_sets else ():
            statistics.moments[name].add(_value(run, data[name], scaled_tensors))
    return statistics


def _value(run: Mapping[str, NDArray[Any]], name: str, scaled_tensors: Mapping[str, tuple[str, Array]]) -> NDArray[Any]:
    if name not in scaled_tensors:
        return run[name]
    source, factor = scaled_tensors[name]
    return run[source] * factor


def _moments(graph: QuantizationGraph, layers: Sequence[Layer]) -> dict[str, Moments]:
    return {
        layer.name: Moments(layer.node, graph.constants[layer.weights].shape) for layer in layers if _fits_moments(graph, layer)
    }


def _fits_moments(graph: QuantizationGraph, layer: Layer) -> bool:
    weights = graph.constants[layer.weights]
    return weights.size // weights.shape[layer.axis] <= MAX_ENTRIES


def run_model(model: Model, inputs: Mapping[str, NDArray[Any]], source: str) -> dict[str, NDArray[Any]]:
    """Run a model on calibration data. Raises DlcError, prefixed with the data source, if the model rejects it."""
    try:
        return {name: np.asarray(result) for name, result in model(dict(inputs)).items()}
    except DlcError as error:
        raise type(error)(f"{source}: {error}") from error

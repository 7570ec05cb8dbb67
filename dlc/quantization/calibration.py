"""Runs the model in floats on calibration data, and counts the values that tensors take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from dlc.errors import DlcError
from dlc.files.model_source import path_or_bytes
from dlc.instrument.report import Doing, Progress
from dlc.model_files import compile_file
from dlc.options import Options
from dlc.quantization.difference import Difference
from dlc.quantization.graph import Graph
from dlc.quantization.histogram import Histogram
from dlc.quantization.moments import MOST_ENTRIES, Moments
from dlc.quantization.placing import Layer
from dlc.quantization.samples import Samples
from dlc.runtime.models.model import Model
from dlc.weights import Array

# Sets of inputs that products of entries are made of.
_MOST_SETS = 64


@dataclass(frozen=True)
class Runner:
    """What runs models while one is quantised, and who hears of it."""

    options: Options
    progress: Progress | None = None

    def compiled(self, model: ModelProto, what: str) -> Model:
        """A model compiled for this machine."""
        # Names of passes would flicker beside what is really done.
        self.told(f"compiling {what}")
        return compile_file(path_or_bytes(model), "cpu", None, self.options)

    def told(self, what: str, done: int = 0, total: int = 0) -> None:
        """Says how far something is."""
        if self.progress is not None:
            self.progress(Doing(what, "", done, total))


class Floats:
    """The model in floats on calibration data: its outputs, and tensors inside."""

    def __init__(self, graph: Graph, tensors: Iterable[str], samples: Samples, runner: Runner) -> None:
        inputs, self.outputs = {value.name for value in graph.inputs}, graph.outputs
        inner = [name for name in tensors if name not in inputs and name not in self.outputs]
        self.samples, self.runner, self.name = samples, runner, graph.name
        self.model = runner.compiled(graph.written(outputs=inner), "the model in floats")

    def runs(self, what: str) -> Iterator[dict[str, NDArray[Any]]]:
        """The inputs and what the model makes of them, one set after the other; only that is in memory."""
        for k, sample in enumerate(self.samples):
            yield {**sample, **called(self.model, sample, self.samples.source)}
            self.runner.told(what, k + 1, len(self.samples))

    def error_of(self, made: ModelProto) -> float:
        """How far the outputs of another model are off."""
        model, difference = self.runner.compiled(made, "the quantised model"), Difference.none()
        for sample, run in zip(self.samples, self.runs("comparing"), strict=True):
            expected = {name: run[name] for name in self.outputs}
            difference.add(expected, called(model, sample, self.samples.source))
        return difference.error


@dataclass(frozen=True)
class Observed:
    """What was seen while the model ran in floats: the values of tensors, and what weights were multiplied by."""

    values: dict[str, Histogram]
    moments: dict[str, Moments]


def observed(
    graph: Graph,
    layers: Sequence[Layer],
    tensors: Iterable[str],
    floats: Floats,
    scaled: Mapping[str, tuple[str, Array]],
    *,
    moments: bool,
) -> Observed:
    """What values tensors take, and with `moments` those of the layers' data; `scaled` are others times a factor."""
    seen = Observed({name: Histogram() for name in tensors}, _moments(graph, layers) if moments else {})
    data = {layer.name: layer.data for layer in layers if layer.name in seen.moments}
    some = set(floats.samples.places(_MOST_SETS))
    for k, run in enumerate(floats.runs("calibrating")):
        for name, histogram in seen.values.items():
            histogram.add(_value(run, name, scaled), f"{graph.name}: tensor '{name}', calibration set {k}")
        for name in data if k in some else ():
            seen.moments[name].add(_value(run, data[name], scaled))
    return seen


def _value(run: Mapping[str, NDArray[Any]], name: str, scaled: Mapping[str, tuple[str, Array]]) -> NDArray[Any]:
    if name not in scaled:
        return run[name]
    source, factor = scaled[name]
    return run[source] * factor


def _moments(graph: Graph, layers: Sequence[Layer]) -> dict[str, Moments]:
    return {layer.name: Moments(layer.node, graph.constants[layer.weights].shape) for layer in layers if _is_few(graph, layer)}


def _is_few(graph: Graph, layer: Layer) -> bool:
    weights = graph.constants[layer.weights]
    return weights.size // weights.shape[layer.axis] <= MOST_ENTRIES


def called(model: Model, inputs: Mapping[str, NDArray[Any]], source: str) -> dict[str, NDArray[Any]]:
    """What a model makes of calibration data. Raises DlcError, which says where the data is from, where it does not take it."""
    try:
        return {name: np.asarray(result) for name, result in model(dict(inputs)).items()}
    except DlcError as error:
        raise type(error)(f"{source}: {error}") from error

"""Runs the model in floats on calibration data, and counts the values that tensors take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from dlc.api import compile_file
from dlc.errors import DlcError
from dlc.instrument.report import Progress
from dlc.model_source import path_or_bytes
from dlc.options import Options
from dlc.quantization.graph import Graph
from dlc.quantization.histogram import Histogram
from dlc.quantization.moments import MOST_ENTRIES, Moments
from dlc.quantization.placing import Layer
from dlc.quantization.samples import Samples
from dlc.runtime.model import Model

# Sets of inputs that products of entries are made of.
_MOST_SETS = 24


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
            self.progress(what, f"{done} of {total}" if total else "")


@dataclass(frozen=True)
class Observed:
    """What was seen while the model ran in floats: the values of tensors, and what weights were multiplied by."""

    values: dict[str, Histogram]
    moments: dict[str, Moments]


def observed(
    graph: Graph, layers: Sequence[Layer], tensors: Iterable[str], samples: Samples, runner: Runner, *, moments: bool
) -> Observed:
    """What values tensors take, and with `moments` those of the layers' data.

    One set of inputs, and what the model makes of it, is in memory at a time.
    """
    seen = Observed({name: Histogram() for name in tensors}, _moments(graph, layers) if moments else {})
    inputs, outputs = {value.name for value in graph.inputs}, graph.outputs
    read = {layer.name: layer.data for layer in layers if layer.name in seen.moments}
    inner = [n for n in dict.fromkeys([*seen.values, *read.values()]) if n not in inputs and n not in outputs]
    model = runner.compiled(graph.written(outputs=inner), "the model in floats")
    some = set(samples.places(_MOST_SETS))
    for k, sample in enumerate(samples):
        results = {**sample, **called(model, sample, samples.source)}
        for name, histogram in seen.values.items():
            histogram.add(results[name], f"{graph.name}: tensor '{name}', calibration set {k}")
        for name, data in read.items():
            if k in some:
                seen.moments[name].add(results[data])
        runner.told("calibrating", k + 1, len(samples))
    return seen


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

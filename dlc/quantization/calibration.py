"""Runs the model in floats on calibration data, and counts the values that tensors take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from dlc.quantization.samples import Samples
from dlc.runtime.model import Model

# Told what is done, and how much of it.
Steps = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Runner:
    """What runs models while one is quantised, and who hears of it."""

    options: Options
    steps: Steps | None = None
    progress: Progress | None = None

    def compiled(self, model: ModelProto, what: str) -> Model:
        """A model compiled for this machine."""
        self.told(f"compiling {what}", 0, 0)
        return compile_file(path_or_bytes(model), "cpu", None, self.options, progress=self.progress)

    def told(self, what: str, done: int, total: int) -> None:
        """Says how far something is."""
        if self.steps is not None:
            self.steps(what, done, total)


def histograms(graph: Graph, tensors: Iterable[str], samples: Samples, runner: Runner) -> dict[str, Histogram]:
    """What values tensors take. One set of inputs, and what the model makes of it, is in memory at a time."""
    found = {name: Histogram() for name in tensors}
    inputs, outputs = {value.name for value in graph.inputs}, graph.outputs
    inner = [name for name in found if name not in inputs and name not in outputs]
    model = runner.compiled(graph.written(outputs=inner), "the model in floats")
    for k, sample in enumerate(samples):
        results = called(model, sample, samples.source)
        for name, histogram in found.items():
            values = np.asarray(sample[name] if name in inputs else results[name])
            histogram.add(values, f"{graph.name}: tensor '{name}', calibration set {k}")
        runner.told("calibrating", k + 1, len(samples))
    return found


def called(model: Model, inputs: Mapping[str, NDArray[Any]], source: str) -> dict[str, NDArray[Any]]:
    """What a model makes of calibration data. Raises DlcError, which says where the data is from, where it does not take it."""
    try:
        return {name: np.asarray(result) for name, result in model(dict(inputs)).items()}
    except DlcError as error:
        raise type(error)(f"{source}: {error}") from error

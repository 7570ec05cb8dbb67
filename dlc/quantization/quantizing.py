"""Post-training quantisation of an ONNX model: from floats and calibration data to a model of integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc.frontend.onnx.graph import ModelFile, load
from dlc.frontend.onnx.named import inputs_of
from dlc.instrument.report import Progress
from dlc.model_source import ModelSource, path_or_bytes
from dlc.options import Options
from dlc.quantization.calibration import Runner, Steps, called, observed
from dlc.quantization.graph import save
from dlc.quantization.placing import Layer, layers_of, tensors_of
from dlc.quantization.preparing import prepared
from dlc.quantization.ranges import Parameters, parameters_of
from dlc.quantization.rewriting import quantised_model
from dlc.quantization.samples import Samples
from dlc.quantization.sensitivity import Difference, Switched, least_kept
from dlc.quantization.settings import Activations, Method, Rounding, Settings
from dlc.quantization.weights import quantised_weights

if TYPE_CHECKING:
    from onnx import ModelProto

# Sets of inputs that each layer's error is measured with.
_PROBES = 8


@dataclass(frozen=True)
class LayerReport:
    """A layer: its node, tensors and numbers of weights; the outputs' error with it alone in integers, and whether it is kept.

    `error` is None where it was not measured. `low` and `high` are the values that its data has.
    """

    name: str
    op: str
    data: str
    weights: int
    low: float
    high: float
    parameters: Parameters
    error: float | None
    kept: bool


@dataclass(frozen=True)
class Quantization:
    """A quantised model, how it was made and what was measured: `error` is that of its outputs on the calibration data.

    An error is the norm of the difference as a share of the norm of what the model in floats computes.
    """

    model: ModelProto
    name: str
    settings: Settings
    layers: tuple[LayerReport, ...]
    others: Mapping[str, str]
    samples: int
    error: float
    bytes_before: int
    bytes_after: int

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the quantised model, an ONNX file."""
        save(self.model, Path(path))


def quantize(
    model: ModelSource | ModelProto,
    samples: str | PathLike[str] | Iterable[Mapping[str, Any] | Any],
    *,
    method: Method = "mse",
    percentile: float = 99.99,
    symmetric: bool = False,
    activations: Activations = "u8",
    per_channel: bool = True,
    everywhere: bool = False,
    rounding: Rounding = "data",
    keep: Sequence[str] = (),
    bound: float | None = None,
    sensitivity: bool = False,
    num_threads: int | None = None,
) -> Quantization:
    """TODO"""
    settings = Settings(method, percentile, symmetric, activations, per_channel, everywhere, rounding, tuple(keep), bound)
    runner = Runner(Options.of(num_threads=num_threads, cache=False))
    file = load(path_or_bytes(model))
    inputs = inputs_of(file)
    path = isinstance(samples, str | PathLike)
    data = Samples.read(Path(samples), inputs) if path else Samples.given(samples, inputs)
    return quantized(file, data, settings, runner, sensitivity=sensitivity)


def quantized(file: ModelFile, samples: Samples, settings: Settings, runner: Runner, *, sensitivity: bool) -> Quantization:
    """A model file quantised, as `quantize` does."""
    graph = prepared(file)
    layers = layers_of(graph)
    tensors = tensors_of(graph, layers.quantised, everywhere=settings.everywhere)
    seen = observed(graph, layers.quantised, set(tensors.values()), samples, runner, moments=settings.rounding == "data")
    counted = seen.values
    parameters = {name: parameters_of(histogram, settings) for name, histogram in counted.items()}
    weights = {
        layer.name: quantised_weights(
            graph, layer, float(parameters[tensors[layer.data]].scale), seen.moments.get(layer.name),
            per_channel=settings.per_channel,
        )
        for layer in layers.quantised
    }
    kept = set(layers.matching(settings.keep))
    errors: dict[str, float] = {}
    if sensitivity or settings.bound is not None:
        few = samples.some(_PROBES)
        switched = Switched(graph, layers.quantised, parameters, weights, settings, few, runner)
        for k, layer in enumerate(layers.quantised):
            errors[layer.name] = switched.error([layer.name])
            runner.told("measuring layers", k + 1, len(layers.quantised))
        if settings.bound is not None:
            kept |= set(least_kept(switched, {n: e for n, e in errors.items() if n not in kept}, settings.bound))
    chosen = [layer for layer in layers.quantised if layer.name not in kept]
    made = quantised_model(graph, chosen, parameters, weights, everywhere=settings.everywhere)
    error = _error(file, made, samples, runner)
    reports = tuple(
        LayerReport(
            l.name, l.op, l.data, int(graph.constants[l.weights].size), counted[tensors[l.data]].least,
            counted[tensors[l.data]].largest, parameters[tensors[l.data]], errors.get(l.name), l.name in kept,
        )
        for l in layers.quantised
    )  # fmt: skip
    return Quantization(
        made, file.name, settings, reports, layers.others, len(samples), error, file.proto.ByteSize(), made.ByteSize()
    )


def _error(file: ModelFile, made: ModelProto, samples: Samples, runner: Runner) -> float:
    """How far the outputs of the quantised model are off."""
    models = [runner.compiled(file.proto, "the model in floats"), runner.compiled(made, "the quantised model")]
    difference = Difference.none()
    for k, sample in enumerate(samples):
        difference.add(*(called(model, sample, samples.source) for model in models))
        runner.told("comparing", k + 1, len(samples))
    return difference.error

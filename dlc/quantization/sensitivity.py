"""What each layer's quantisation costs: the model in floats with a switch for each of them.

One program answers all questions. In it a tensor is what it was, or what its integers stand for, as an input of the program
says, and weights are inputs:

    x' = Where(on:x, Dequantize(Quantize(x)), x)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from dlc.errors import DlcError
from dlc.quantization.calibration import Runner, called
from dlc.quantization.difference import Difference
from dlc.quantization.graph import Graph
from dlc.quantization.placing import Layer, tensors_of
from dlc.quantization.ranges import Parameters
from dlc.quantization.rewriting import dequantised
from dlc.quantization.samples import Samples
from dlc.quantization.settings import Settings
from dlc.quantization.weights import QuantisedWeights
from dlc.runtime.models.model import Model

_ON = np.asarray(True)


class Switched:
    """The model in floats with a switch for each layer, and what it should compute."""

    def __init__(
        self,
        graph: Graph,
        layers: Iterable[Layer],
        parameters: Mapping[str, Parameters],
        weights: Mapping[str, QuantisedWeights],
        settings: Settings,
        samples: Samples,
        probes: Samples,
        runner: Runner,
    ) -> None:
        self.layers = {layer.name: layer for layer in layers}
        self.everywhere, self.graph, self.samples, self.probes = settings.everywhere, graph, samples, probes
        self.tensors = tensors_of(graph, self.layers.values(), everywhere=settings.everywhere)
        copy = graph.copy()
        self.switches = {name: copy.new_name(f"{name}_on") for name in self.tensors}
        for name, source in self.tensors.items():
            nodes, made = dequantised(copy, name, parameters[source])
            chosen = copy.new_name(f"{name}_chosen")
            where = helper.make_node("Where", [self.switches[name], made, name], [chosen], name=chosen)
            copy.read_instead(name, ([*nodes, where], chosen))
        self.floats: dict[str, NDArray[Any]] = {}
        self.integers: dict[str, dict[str, NDArray[Any]]] = {}
        nodes = copy.producers
        for name, layer in self.layers.items():
            # Inputs of its own: others may read the same weights.
            node, (floats, bias) = nodes[layer.node.output[0]], (weights[name].floats, weights[name].bias)
            operands = {1: (graph.constants[layer.weights], floats)}
            if layer.bias is not None and bias is not None:
                operands[2] = graph.constants[layer.bias], bias
            self.integers[name] = {}
            for k, (before, after) in operands.items():
                node.input[k] = copy.new_name(f"{name}_operand{k}")
                self.floats[node.input[k]], self.integers[name][node.input[k]] = before, after
        inputs = [*self.floats.items(), *((switch, _ON) for switch in self.switches.values())]
        self.runner = runner
        self.model: Model = runner.compiled(copy.written(inputs=inputs), "the model with a switch for each layer")
        self.expected = [self._outputs((), sample) for sample in probes]
        if not any(a.dtype.kind == "f" for a in self.expected[0].values()):
            raise DlcError(
                f"{graph.name}: none of its outputs ({', '.join(self.expected[0])}) is of floats, whose error could be "
                "measured; leave out what makes integers of them, or ask for neither a table of layers nor a bound"
            )

    def probed(self, layer: str) -> float:
        """How far the outputs for a few samples are off with this layer alone in integers."""
        difference = Difference.none()
        for sample, expected in zip(self.probes, self.expected, strict=True):
            difference.add(expected, self._outputs([layer], sample))
        return difference.error

    def error(self, quantised: Collection[str]) -> float:
        """How far the outputs for all samples are off with these layers in integers."""
        self.runner.told("choosing layers to keep in floats")
        difference = Difference.none()
        for sample in self.samples:
            difference.add(self._outputs((), sample), self._outputs(quantised, sample))
        return difference.error

    def _outputs(self, quantised: Collection[str], sample: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        on = [self.layers[name] for name in quantised]
        tensors = tensors_of(self.graph, on, everywhere=self.everywhere)
        switches = {switch: np.asarray(name in tensors) for name, switch in self.switches.items()}
        weights = {**self.floats}
        for name in quantised:
            weights |= self.integers[name]
        return called(self.model, {**sample, **switches, **weights}, self.samples.source)


def least_kept(error: Callable[[Sequence[str]], float], worst: Sequence[str], bound: float) -> int:
    """How many layers to keep in floats, from the worst one on, so that the `error` with the others is within a bound.

    Raises DlcError where it is not with any of them in integers.
    """
    few, many = 0, len(worst)
    while few < many:
        middle = (few + many) // 2
        if error(worst[middle:]) <= bound:
            many = middle
        else:
            few = middle + 1
    if few == len(worst):
        raise DlcError(
            f"no layer can be quantised within a bound of {bound:g}: with '{worst[-1]}' alone, which matters least, the "
            f"outputs differ by {error(worst[-1:]):.3g}"
        )
    return few

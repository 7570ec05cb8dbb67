"""Measure the sensitivity of each layer: the output error when only this layer is quantized.

All measurements use one compiled program. In it, each tensor is either the original or quantized and dequantized, selected by
a boolean input of the program, and the weights are inputs:

    x' = Where(x_on, Dequantize(Quantize(x)), x)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from dlc.errors import DlcError
from dlc.quantization.calibration import ModelRunner, run_model
from dlc.quantization.calibration_data import CalibrationData
from dlc.quantization.graph import QuantizationGraph
from dlc.quantization.layer_selection import Layer, quantized_tensors
from dlc.quantization.output_error import OutputError
from dlc.quantization.qdq_model import quantize_dequantize
from dlc.quantization.ranges import QuantizationParameters
from dlc.quantization.settings import QuantizationSettings
from dlc.quantization.weights import QuantizedWeights
from dlc.runtime.models.model import Model

_DEFAULT_SWITCH = np.asarray(True)


class LayerSwitchModel:
    """The float model with a quantization switch for each layer, and its expected outputs.

    Layer errors are measured on the samples `probes`, errors of several layers on all `samples`.
    """

    def __init__(
        self,
        graph: QuantizationGraph,
        layers: Iterable[Layer],
        parameters: Mapping[str, QuantizationParameters],
        weights: Mapping[str, QuantizedWeights],
        settings: QuantizationSettings,
        samples: CalibrationData,
        probes: CalibrationData,
        runner: ModelRunner,
    ) -> None:
        self.layers = {layer.name: layer for layer in layers}
        self.quantize_outputs, self.graph, self.samples, self.probes = settings.quantize_outputs, graph, samples, probes
        self.tensors = quantized_tensors(graph, self.layers.values(), quantize_outputs=settings.quantize_outputs)
        copy = graph.copy()
        self.switches = {name: copy.unique_name(f"{name}_on") for name in self.tensors}
        for name, source in self.tensors.items():
            nodes, dequantized = quantize_dequantize(copy, name, parameters[source])
            selected = copy.unique_name(f"{name}_chosen")
            where = helper.make_node("Where", [self.switches[name], dequantized, name], [selected], name=selected)
            copy.replace_uses(name, ([*nodes, where], selected))
        self.floats: dict[str, NDArray[Any]] = {}
        self.integers: dict[str, dict[str, NDArray[Any]]] = {}
        nodes = copy.producers
        for name, layer in self.layers.items():
            # Separate inputs per layer, because several layers may use the same weights.
            node, (floats, bias) = nodes[layer.node.output[0]], (weights[name].floats, weights[name].bias)
            operands = {1: (graph.constants[layer.weights], floats)}
            if layer.bias is not None and bias is not None:
                operands[2] = graph.constants[layer.bias], bias
            self.integers[name] = {}
            for k, (float_value, integer_value) in operands.items():
                node.input[k] = copy.unique_name(f"{name}_operand{k}")
                self.floats[node.input[k]], self.integers[name][node.input[k]] = float_value, integer_value
        inputs = [*self.floats.items(), *((switch, _DEFAULT_SWITCH) for switch in self.switches.values())]
        self.runner = runner
        self.model: Model = runner.compiled(copy.to_model(inputs=inputs), "the model with a switch for each layer")
        self.expected = [self._outputs((), sample) for sample in probes]
        if not any(a.dtype.kind == "f" for a in self.expected[0].values()):
            raise DlcError(
                f"{graph.name}: measuring errors needs a float output; the outputs are {', '.join(self.expected[0])}; remove "
                "the ops that convert them to integers, or drop layers and max_error (--layers, --max-error)"
            )

    def layer_error(self, layer: str) -> float:
        """Return the output error with only this layer quantized, over `probes`."""
        difference = OutputError.empty()
        for sample, expected in zip(self.probes, self.expected, strict=True):
            difference.add(expected, self._outputs([layer], sample))
        return difference.error

    def error(self, quantized: Collection[str]) -> float:
        """Return the output error with these layers quantized, over all samples."""
        self.runner.report_progress("choosing layers to keep in float")
        difference = OutputError.empty()
        for sample in self.samples:
            difference.add(self._outputs((), sample), self._outputs(quantized, sample))
        return difference.error

    def _outputs(self, quantized: Collection[str], sample: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        quantized_layers = [self.layers[name] for name in quantized]
        tensors = quantized_tensors(self.graph, quantized_layers, quantize_outputs=self.quantize_outputs)
        switches = {switch: np.asarray(name in tensors) for name, switch in self.switches.items()}
        weights = {**self.floats}
        for name in quantized:
            weights |= self.integers[name]
        return run_model(self.model, {**sample, **switches, **weights}, self.samples.source)


def min_float_layers(error: Callable[[Sequence[str]], float], most_sensitive: Sequence[str], max_error: float) -> int:
    """Return the minimum number of most sensitive layers kept in float for an error of at most `max_error` (binary search).

    Raises DlcError if `max_error` cannot be met with any layer quantized.
    """
    low, high = 0, len(most_sensitive)
    while low < high:
        middle = (low + high) // 2
        if error(most_sensitive[middle:]) <= max_error:
            high = middle
        else:
            low = middle + 1
    if low == len(most_sensitive):
        raise DlcError(
            f"max_error {max_error:g}: no layer can be quantized: with only the least sensitive one, '{most_sensitive[-1]}', "
            f"the output error is {error(most_sensitive[-1:]):.3g}; use a larger max_error"
        )
    return low

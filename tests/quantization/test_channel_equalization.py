"""Equalized channels have similar ranges, and the model computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from dlc.arrays import TensorInfo
from dlc.frontend.onnx.graph import ModelFile
from dlc.options import Options
from dlc.quantization.calibration import FloatModel, ModelRunner
from dlc.quantization.calibration_data import CalibrationData
from dlc.quantization.channel_equalization import equalize_channels
from dlc.quantization.graph import QuantizationGraph
from dlc.quantization.layer_selection import find_layers, quantized_tensors
from tests.quantization.models import evaluated, model_of

draw = np.random.default_rng(9)
X = draw.standard_normal((6, 1, 4, 6, 6)).astype(np.float32) * np.geomspace(0.3, 8, 4).astype(np.float32)[:, None, None]


def normal(*shape: int) -> Any:
    return draw.standard_normal(shape).astype(np.float32)


CONV = [
    helper.make_node("Abs", ["x"], ["r"]),
    helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    helper.make_node("Conv", ["p", "w"], ["a"], name="in groups", group=2),
    helper.make_node("Conv", ["r", "v"], ["b"], name="each", group=4, pads=[1, 1, 1, 1]),
    helper.make_node("Neg", ["p"], ["c"]),
    helper.make_node("Concat", ["a", "b", "c", "r"], ["y"], axis=1),
]
PRODUCT = [
    helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1]),
    helper.make_node("Abs", ["t"], ["r"]),
    helper.make_node("MatMul", ["r", "m"], ["a"], name="product"),
    helper.make_node("Concat", ["a", "r"], ["y"], axis=-1),
]


@pytest.mark.parametrize(("nodes", "axis"), [(CONV, 1), (PRODUCT, -1)], ids=["convolutions", "products"])
def test_equalized_ranges_and_equal_results(nodes: Any, axis: int) -> None:
    weights = {"w": normal(6, 2, 1, 1), "v": normal(4, 1, 3, 3), "m": normal(4, 5)}
    model = model_of(nodes, weights, (1, 4, 6, 6), rank=4)
    graph = QuantizationGraph(ModelFile(model, Path(), "m"))
    layers = find_layers(graph).quantizable
    samples = CalibrationData.from_iterable(X, [TensorInfo("x", X.shape[1:], X.dtype)])
    floats = FloatModel(graph, quantized_tensors(graph, layers), samples, ModelRunner(Options.of(cache=False)))
    source, factor = equalize_channels(graph, layers, floats)["r_even"]
    assert source == "r"
    r = np.abs(X) if axis == 1 else np.moveaxis(np.abs(X), 2, -1)
    spreads: list[float] = []
    for values in (r, r * factor):
        most = np.moveaxis(values, 2 if axis == 1 else -1, 0).reshape(4, -1).max(1)
        spreads.append(most.max() / most.min())
    assert spreads[1] < spreads[0] / 2
    for x in X:
        np.testing.assert_allclose(evaluated(graph.to_model(), x), evaluated(model, x), rtol=1e-4, atol=1e-4)

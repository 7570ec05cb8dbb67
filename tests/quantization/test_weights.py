"""Int8 weights: GPTQ rounding by the moments of the inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from dlc.frontend.onnx.graph import ModelFile
from dlc.quantization.graph import QuantizationGraph
from dlc.quantization.layer_selection import find_layers
from dlc.quantization.moments import Moments
from dlc.quantization.weights import QuantizedWeights, quantize_weights
from tests.quantization.models import evaluated, model_of

draw = np.random.default_rng(7)
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strides and pads": {"strides": [2, 1], "pads": [0, 1, 2, 1]},
    "dilations": {"dilations": [2, 1]},
    "groups": {"group": 2},
    "same upper": {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    "same lower": {"auto_pad": "SAME_LOWER"},
    "valid": {"auto_pad": "VALID"},
}


def graph_of(node: Any, weights: dict[str, NDArray[Any]], x: tuple[int, ...]) -> QuantizationGraph:
    return QuantizationGraph(ModelFile(model_of([node], weights, x), Path(), "m"))


@pytest.mark.parametrize("attributes", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_moments_of_convolution_inputs(attributes: dict[str, Any]) -> None:
    x = draw.standard_normal((2, 4, 7, 6)).astype(np.float32)
    w = draw.standard_normal((6, 4 // attributes.get("group", 1), 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    y = evaluated(model_of([node], {"w": w}, x.shape, rank=4), x)
    moments = Moments(node, w.shape)
    moments.add(x)
    rows = w.reshape(moments.groups, -1, moments.sum.shape[1])
    assert moments.count == y.size // y.shape[1]
    sums = y.sum((0, 2, 3)).reshape(moments.groups, -1)
    np.testing.assert_allclose(np.einsum("gok,gk->go", rows, moments.sum), sums, rtol=1e-4, atol=1e-4)
    squares = (y**2).sum((0, 2, 3)).reshape(moments.groups, -1)
    np.testing.assert_allclose(np.einsum("gok,gkl,gol->go", rows, moments.products, rows), squares, rtol=1e-4)


def rounded(
    w: NDArray[Any], rows: NDArray[Any] | None, op: str, reduce_range: bool = False, **attributes: Any
) -> QuantizedWeights:
    node = helper.make_node(op, ["x", "w", *(["b"] if op == "Gemm" else [])], ["y"], **attributes)
    weights = {"w": w, "b": np.zeros(w.shape[1 - attributes.get("transB", 0)], np.float32)}
    graph = graph_of(node, weights, (1, w.shape[0]))
    (layer,) = find_layers(graph).quantizable
    moments = None
    if rows is not None:
        moments = Moments(node, w.shape)
        moments.add(rows)
    return quantize_weights(graph, layer, 0.1, moments, per_channel=True, reduce_range=reduce_range)


@pytest.mark.parametrize("transposed", [0, 1])
def test_rounding_errors_are_compensated(transposed: int) -> None:
    # Correlated entries, like the pixels of a window.
    x = (draw.standard_normal((500, 1)) * 5 + draw.standard_normal((500, 40)) + 1).astype(np.float32)
    w = draw.standard_normal((40, 6)).astype(np.float32)
    stored = np.ascontiguousarray(w.T) if transposed else w
    nearest, made_up = (rounded(stored, rows, "Gemm", transB=transposed) for rows in (None, x))
    assert np.array_equal(nearest.scale, made_up.scale)
    errors = []
    for q in (nearest, made_up):
        floats = q.floats.T if transposed else q.floats
        assert q.bias is not None
        errors.append(float(((x @ floats + q.bias - x @ w) ** 2).mean()))
        assert np.abs(floats - w).max() < 4 * q.scale.max()
    assert errors[1] < errors[0] / 5


@pytest.mark.parametrize("rows", [None, draw.standard_normal((50, 40)).astype(np.float32)], ids=["nearest", "data"])
def test_reduced_range(rows: NDArray[Any] | None) -> None:
    w = draw.standard_normal((40, 6)).astype(np.float32)
    full, reduced = (rounded(w, rows, "Gemm", reduce_range=r) for r in (False, True))
    assert abs(reduced.values).max() == 64
    np.testing.assert_allclose(reduced.scale, full.scale * 127 / 64, rtol=1e-6)


def test_scale_covers_the_bias() -> None:
    w, b = np.full((1, 2, 1, 1), 1e-9, np.float32), np.array([100], np.float32)
    graph = graph_of(helper.make_node("Conv", ["x", "w", "b"], ["y"]), {"w": w, "b": b}, (1, 2, 4, 4))
    (layer,) = find_layers(graph).quantizable
    q = quantize_weights(graph, layer, 1e-3, None, per_channel=True)
    assert 100 / (1e-3 * q.scale[0]) < 2**31

"""Preparing a model does not change its results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper

from dlc.errors import UnsupportedError
from dlc.frontend.onnx.graph import ModelFile
from dlc.quantization.graph import QuantizationGraph
from dlc.quantization.layer_selection import find_layers, quantized_tensors
from dlc.quantization.preparation import prepare_graph
from tests.quantization.models import evaluated, images, model_of, small_net

draw = np.random.default_rng(8)


def prepare(model: ModelProto) -> QuantizationGraph:
    return prepare_graph(ModelFile(model, Path(), "m"))


@pytest.mark.parametrize("opset", [11, 20])
def test_batch_norm_is_folded(opset: int) -> None:
    model = small_net(opset=opset)
    graph = prepare(model)
    assert "BatchNormalization" not in {node.op_type for node in graph.nodes}
    (x,) = images(1)
    to_model = graph.to_model()
    np.testing.assert_allclose(evaluated(to_model, x), evaluated(small_net(), x), rtol=1e-4, atol=1e-5)
    assert model.SerializeToString() == small_net(opset=opset).SerializeToString()


def test_weights_behind_constant_nodes_are_folded() -> None:
    w = draw.standard_normal((3, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Constant", [], ["w"], value=helper.make_tensor("w", 1, w.shape, w.tobytes(), raw=True)),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"], name="product"),
    ]
    graph = prepare(model_of(nodes, {}, (2, 4)))
    (layer,) = find_layers(graph).quantizable
    assert (layer.name, layer.axis) == ("product", 1)
    assert np.array_equal(graph.constants[layer.weights], w.T)


def test_moved_tensors_share_a_range() -> None:
    graph = prepare(small_net())
    layers = {layer.name: layer for layer in find_layers(graph).quantizable}
    assert list(layers) == ["first", "depthwise", "pointwise", "classes"]
    assert quantized_tensors(graph, layers.values()) == {"x": "x", "r1": "r1", "p1": "r1", "c2": "c2", "a": "a", "f": "a"}
    assert quantized_tensors(graph, [layers["pointwise"]]) == {"c2": "c2"}
    quantize_outputs = quantized_tensors(graph, layers.values(), quantize_outputs=True)
    assert list(quantize_outputs) == ["x", "r1", "p1", "c2", "c3", "s", "a", "f"]


def test_skipped_nodes_have_reasons() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="by weights"),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("MatMul", ["a", "b"], ["y"], name="by data"),
    ]
    found = find_layers(prepare(model_of(nodes, {"w": np.eye(4, dtype=np.float32)}, (2, 4))))
    assert [layer.name for layer in found.quantizable] == ["by weights"]
    assert found.skipped_nodes == {"by data": "MatMul: its weights are not constant"}
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"], name="square")]
    with pytest.raises(UnsupportedError, match=r"m: nothing to quantize: .*\n  square: MatMul: its weights are not constant"):
        find_layers(prepare(model_of(nodes, {}, (4, 4))))


def test_a_quantized_model_is_rejected() -> None:
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="q")]
    with pytest.raises(
        UnsupportedError, match=r"m: already quantized: node 'q' \(DynamicQuantizeLinear\); give the float model"
    ):
        prepare(model_of(nodes, {}, (4,), "s"))

"""What is done before layers are looked at does not change what a model computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper

from dlc.errors import UnsupportedError
from dlc.frontend.onnx.graph import ModelFile
from dlc.quantization.graph import Graph
from dlc.quantization.placing import layers_of, tensors_of
from dlc.quantization.preparing import prepared
from tests.quantization.models import evaluated, model_of, pictures, small_net

draw = np.random.default_rng(8)


def prepare(model: ModelProto) -> Graph:
    return prepared(ModelFile(model, Path(), "m"))


@pytest.mark.parametrize("opset", [11, 20])
def test_batch_norm_goes_into_weights(opset: int) -> None:
    model = small_net(opset=opset)
    graph = prepare(model)
    assert "BatchNormalization" not in {node.op_type for node in graph.nodes}
    (x,) = pictures(1)
    written = graph.written()
    np.testing.assert_allclose(evaluated(written, x), evaluated(small_net(), x), rtol=1e-4, atol=1e-5)
    assert model.SerializeToString() == small_net(opset=opset).SerializeToString()


def test_weights_behind_other_nodes_are_found() -> None:
    w = draw.standard_normal((3, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Constant", [], ["w"], value=helper.make_tensor("w", 1, w.shape, w.tobytes(), raw=True)),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"], name="product"),
    ]
    graph = prepare(model_of(nodes, {}, (2, 4)))
    (layer,) = layers_of(graph).quantised
    assert (layer.name, layer.axis) == ("product", 1)
    assert np.array_equal(graph.constants[layer.weights], w.T)


def test_what_is_moved_shares_a_range() -> None:
    graph = prepare(small_net())
    layers = {layer.name: layer for layer in layers_of(graph).quantised}
    assert list(layers) == ["first", "depthwise", "pointwise", "classes"]
    assert tensors_of(graph, layers.values()) == {"x": "x", "r1": "r1", "p1": "r1", "c2": "c2", "a": "a", "f": "a"}
    assert tensors_of(graph, [layers["pointwise"]]) == {"c2": "c2"}
    everywhere = tensors_of(graph, layers.values(), everywhere=True)
    assert list(everywhere) == ["x", "r1", "p1", "c2", "c3", "s", "a", "f"]


def test_what_is_no_layer_has_a_reason() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="by weights"),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("MatMul", ["a", "b"], ["y"], name="by data"),
    ]
    found = layers_of(prepare(model_of(nodes, {"w": np.eye(4, dtype=np.float32)}, (2, 4))))
    assert [layer.name for layer in found.quantised] == ["by weights"]
    assert found.others == {"by data": "MatMul: what it multiplies by is no constant"}
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"], name="square")]
    with pytest.raises(
        UnsupportedError, match=r"m: nothing to quantise: .*\n  square: MatMul: what it multiplies by is no constant"
    ):
        layers_of(prepare(model_of(nodes, {}, (4, 4))))


def test_a_quantised_model_is_refused() -> None:
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="q")]
    with pytest.raises(UnsupportedError, match=r"m: quantised already: node 'q' \(DynamicQuantizeLinear\); give the model in"):
        prepare(model_of(nodes, {}, (4,), "s"))

"""Resize of symbolic axes: one program for all sizes, with the results of static sizes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import dlc

SIZES = [(1, 4, 6), (2, 5, 7), (1, 1, 3)]
SETTINGS: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    "nearest, ceil": {"mode": "nearest", "nearest_mode": "ceil"},
    "linear": {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    "linear, corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    "cubic": {"mode": "cubic"},
}


def model(nodes: list[Any], constants: dict[str, np.ndarray]) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, "H", "W"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "resize", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def scaled(settings: dict[str, Any]) -> ModelProto:
    return model([helper.make_node("Resize", ["x", "", "s"], ["y"], **settings)], {"s": np.array([1, 1, 2, 0.5], np.float32)})


def resized_to_shape(settings: dict[str, Any]) -> ModelProto:
    """Return a model that pads the image and resizes the result to the original size, as a decoder does."""
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["padded"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Resize", ["padded", "", "", "shape"], ["y"], **settings),
    ]
    return model(nodes, {"p": np.array([0, 0, 1, 0, 0, 0, 2, 1], np.int64)})


@pytest.mark.parametrize("make", [scaled, resized_to_shape])
@pytest.mark.parametrize("name", SETTINGS)
def test_one_program_has_the_results_of_static_sizes(name: str, make: Any) -> None:
    proto = make(SETTINGS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as of a program that is specialized per shape
        dynamic = dlc.compile_model(proto, target="reference")
        for n, h, w in SIZES:
            x = np.random.default_rng(0).standard_normal((n, 2, h, w), np.float32)
            static = dlc.compile_model(proto, target="reference", input_shapes={"x": x.shape})
            np.testing.assert_allclose(dynamic(x=x)["y"], static(x=x)["y"], rtol=1e-5, atol=1e-6)


def test_a_symbolic_batch_is_left_alone() -> None:
    settings = {"mode": "linear", "antialias": 1}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 4, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    scales = numpy_helper.from_array(np.array([1, 1, 0.5, 0.5], np.float32), "s")
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **settings)
    graph = helper.make_graph([node], "resize", [x], [y], [scales])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = dlc.compile_model(proto, target="reference")
    assert [run(x=np.ones((n, 1, 4, 6), np.float32))["y"].shape for n in (1, 3)] == [(1, 1, 2, 3), (3, 1, 2, 3)]

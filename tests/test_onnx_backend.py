"""dlc as a backend of the onnx package; tests/suites/onnx_node.py runs ONNX's node tests through it too."""

from __future__ import annotations

import unittest
from typing import Any, cast

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.backend.base import Backend
from onnx.backend.test import runner

import dlc
from dlc import onnx_backend
from dlc.errors import DlcError, ModelError
from tests.frontend.onnx.build import model
from tests.suites.onnx_node import cases

X = np.arange(6, dtype=np.float32).reshape(2, 3)
RELU = model([helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Relu", ["x"], ["z"])], {"x": (2, 3)}, ["y", "z"])


def test_the_interface_is_complete() -> None:
    wanted = {name for name, value in vars(Backend).items() if isinstance(value, classmethod)}
    assert wanted == {name for name in dlc.onnx_backend.__all__ if name.islower()}


@pytest.mark.parametrize("inputs", [X, [X], {"x": X}])
def test_inputs_by_position_or_name(inputs: object) -> None:
    outputs = onnx_backend.run_model(RELU, inputs, "reference")
    np.testing.assert_array_equal(outputs[0], -X)
    np.testing.assert_array_equal(cast(Any, outputs).z, X)


def test_nodes_have_the_requested_opset() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"])
    (flat,) = onnx_backend.run_node(node, [X[:, :, None]], "reference", opset_version=11)
    (along,) = onnx_backend.run_node(node, X[:, :, None], "reference")
    np.testing.assert_allclose(np.asarray(flat).sum(), 2, 1e-6)
    np.testing.assert_array_equal(along, np.ones((2, 3, 1)))
    concat = helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)
    np.testing.assert_array_equal(onnx_backend.run_node(concat, [[X, X]], "reference")[0], np.concatenate([X, X]))
    twice = helper.make_node("StringConcat", ["x", "x"], ["y"])
    assert onnx_backend.run_node(twice, np.array(["a", "b"]), "reference")[0].tolist() == ["aa", "bb"]
    with pytest.raises(ModelError, match="got 2 inputs, expected 1: x"):
        onnx_backend.run_node(node, [X, X], "reference")


def test_devices_are_targets() -> None:
    assert [onnx_backend.supports_device(name) for name in ("CPU", "reference", "CUDA")] == [True, True, False]
    with pytest.raises(DlcError, match="CUDA"):
        onnx_backend.prepare(RELU, "CUDA")


def test_unsupported_models_are_not_compatible() -> None:
    unknown = model([helper.make_node("Unknown", ["x"], ["y"])], {"x": (2, 3)}, ["y"])
    text = model([helper.make_node("Neg", ["x"], ["y"])], {"x": (2,)}, ["y"], dtypes={"x": TensorProto.STRING})
    # Shapes that depend on values are compatible.
    expand = model(
        [helper.make_node("Expand", ["x", "s"], ["y"])], {"x": (3,), "s": (2,)}, ["y"], dtypes={"s": TensorProto.INT64}
    )
    assert [onnx_backend.is_compatible(m) for m in (RELU, expand, unknown, text)] == [True, True, False, False]


def test_onnx_test_cases_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(kind: str) -> list[Any]:
        return [cases()[name] for name in ("test_add", "test_relu")] if kind == "node" else []

    monkeypatch.setattr(runner, "load_model_tests", few)
    result = unittest.TestResult()
    runner.Runner(cast(Any, onnx_backend), __name__).test_suite.run(result)
    assert (result.testsRun, len(result.skipped), result.failures + result.errors) == (4, 2, [])

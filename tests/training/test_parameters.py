"""Initializers as optional inputs of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import ModelProto, helper

import dlc
from dlc.cli import main
from tests.frontend.onnx.build import INT64, model

X = np.float32([[1, 2], [3, 4], [5, 6]])
W, B = np.float32([[1, -1, 2], [0, 3, 1]]), np.float32([1, 2, 3])


def dense() -> ModelProto:
    """Return x·w + b; the file lists `w` as an input as well."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    return model(nodes, {"x": ["N", 2], "w": [2, 3]}, ["y"], weights={"w": W, "b": B})


def test_parameters_are_optional_inputs(tmp_path: Path) -> None:
    dlc.compile_model(dense(), parameters="w").save(tmp_path / "m.dlc")
    loaded = dlc.load(tmp_path / "m.dlc")
    np.testing.assert_array_equal(loaded(X)["y"], X @ W + B)
    np.testing.assert_array_equal(loaded(X, w=2 * W)["y"], X @ (2 * W) + B)
    np.testing.assert_array_equal(loaded(X[:1])["y"], X[:1] @ W + B)


def test_without_parameters_initializers_are_constants() -> None:
    compiled = dlc.compile_model(dense(), target="reference")
    assert [info.name for info in compiled.inputs] == ["x"]
    with pytest.raises(dlc.DlcError, match=r"no input is named 'w'.*`parameters`"):
        compiled(x=X, w=W)


def test_parameters_by_pattern_and_by_option(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(dense().SerializeToString())
    made = CliRunner().invoke(
        main, ["compile", str(tmp_path / "m.onnx"), "--parameters", "?", "-o", str(tmp_path / "m.dlc")], catch_exceptions=False
    )
    assert made.exit_code == 0, made.output
    assert [info.name for info in dlc.load(tmp_path / "m.dlc").inputs] == ["x", "w", "b"]


def test_initializers_that_determine_shapes_are_not_parameters() -> None:
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    source = model([node], {"x": [2, 3]}, ["y"], weights={"s": np.int64([3, 2])}, dtypes={"s": INT64})
    with pytest.raises(dlc.UnsupportedError, match=r"s: the shapes or the control flow depend on their values"):
        dlc.compile_model(source, parameters="s")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"parameters": "v"}, "parameters 'v': no such initializer; initializers: w, b"),
        ({"parameters": "x"}, "parameters 'x': no such initializer; initializers: w, b"),
        ({"parameters": "w", "vjp": "y", "wrt": "b"}, "vjp and parameters cannot be combined"),
    ],
)
def test_unknown_initializers_are_errors(given: dict[str, str], text: str) -> None:
    with pytest.raises(dlc.DlcError) as raised:
        dlc.compile_model(dense(), target="reference", **given)  # pyright: ignore[reportArgumentType]
    assert text in str(raised.value)
